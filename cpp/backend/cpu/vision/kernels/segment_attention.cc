#include "backend/cpu/simd/simd.h"
#include "backend/cpu/vision/kernels/segment_products.h"
#include "backend/cpu/vision/segment_kernels.h"

// Compiled once per ISA. segment_kernels.h states the order of every sum.

namespace headrace::HEADRACE_ISA {
namespace {

constexpr float kNever = -__builtin_inff();
/// How far a score may lie above the row's reference before what was summed is rescaled. A
/// probability is at most 2 to this power then; its relative error is the same.
constexpr float kSlack = 8.0f;

/// What a block of queries has seen so far, each [..][kBlockQueries].
struct Running {
  float* sums;        ///< of p * v [head_dim]
  float* references;  ///< what probabilities are relative to
  float* totals;      ///< of p
};

void clear(const Running& running, int head_dim) {
  for (int v = 0; v < kBlockVectors; ++v) {
    store(running.references + v * kLanes, set1(kNever));
    store(running.totals + v * kLanes, zero());
  }
  for (int i = 0; i < head_dim * kBlockVectors; ++i) store(running.sums + i * kLanes, zero());
}

/// Has the references reach up to the tops of a tile's scores.
HEADRACE_SIMD_INLINE void follow_scores(const F32 (&top)[kBlockVectors], const Running& running,
                                        int head_dim) {
  uint32_t above = 0;
#pragma GCC unroll 2
  for (int v = 0; v < kBlockVectors; ++v) {
    above |= greater_mask(top[v], add(load(running.references + v * kLanes), set1(kSlack)));
  }
  if (above == 0) return;
  F32 factor[kBlockVectors];
#pragma GCC unroll 2
  for (int v = 0; v < kBlockVectors; ++v) {
    const F32 old = load(running.references + v * kLanes), limit = add(old, set1(kSlack));
    // A row that stays as it is takes a factor of exactly 1.
    factor[v] = select_greater(top[v], limit, exp2(sub(old, top[v])), set1(1.0f));
    store(running.references + v * kLanes, select_greater(top[v], limit, top[v], old));
    store(running.totals + v * kLanes, mul(load(running.totals + v * kLanes), factor[v]));
  }
  for (int i = 0; i < head_dim; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kBlockVectors; ++v) {
      float* at = running.sums + i * kBlockQueries + v * kLanes;
      store(at, mul(load(at), factor[v]));
    }
  }
}

/// Where a task's things lie in its scratch.
struct Scratch {
  float* queries;  ///< [blocks][head_dim][kBlockQueries], scaled
  float* sums;     ///< the same
  float* references;
  float* totals;
  float* tile;
  float* scores;  ///< [kSegmentTileKeys][kBlockQueries]

  explicit Scratch(float* memory) {
    constexpr int64_t kQueryFloats = int64_t{kSegmentTaskRows} * kSegmentHeadDim;
    queries = memory;
    sums = queries + kQueryFloats;
    references = sums + kQueryFloats;
    totals = references + kSegmentTaskRows;
    tile = totals + kSegmentTaskRows;
    scores = tile + 2 * kSegmentTileKeys * segment_row_floats(kSegmentHeadDim);
  }
  Running block(int number, int head_dim) const {
    const int64_t queries_before = int64_t{number} * kBlockQueries;
    return {sums + queries_before * head_dim, references + queries_before, totals + queries_before};
  }
};

/// `rows` rows [rows][head_dim] to [head_dim][kBlockQueries], times `scale`; the missing ones are
/// 0.
void turn_queries(const float* rows, int64_t stride, int count, int head_dim, F32 scale,
                  float* out) {
  for (int first = 0; first < kBlockQueries; first += kLanes) {
    for (int column = 0; column < head_dim; column += kLanes) {
      const int columns = head_dim - column < kLanes ? head_dim - column : kLanes;
      F32 lanes[kLanes];
#pragma GCC unroll 16
      for (int r = 0; r < kLanes; ++r) {
        lanes[r] = first + r < count
                       ? mul(load_part(rows + (first + r) * stride + column, columns), scale)
                       : zero();
      }
      transpose(lanes);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        if (i < columns) store(out + (column + i) * kBlockQueries + first, lanes[i]);
      }
    }
  }
}

/// The sums of `count` queries, divided by their totals, to rows.
void write_output(const Running& running, int count, int head_dim, float* out, int64_t stride) {
  for (int first = 0; first < count; first += kLanes) {
    const F32 inverse = div(set1(1.0f), load(running.totals + first));
    for (int column = 0; column < head_dim; column += kLanes) {
      const int columns = head_dim - column < kLanes ? head_dim - column : kLanes;
      F32 lanes[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        lanes[i] = i < columns
                       ? mul(load(running.sums + (column + i) * kBlockQueries + first), inverse)
                       : zero();
      }
      transpose(lanes);
#pragma GCC unroll 16
      for (int r = 0; r < kLanes; ++r) {
        if (first + r < count) store_part(out + (first + r) * stride + column, lanes[r], columns);
      }
    }
  }
}

int share_of(int count, int parts) { return (count + parts - 1) / parts; }

/// Brings part `part` of `parts` of the tile behind the one at `start` closer.
void fetch_part(const SegmentTask& task, int64_t start, int64_t tile_floats, int part, int parts) {
  const int64_t first = start + kSegmentTileKeys;
  if (first >= task.num_keys) return;
  if (task.tiles != nullptr) {
    const int lines = static_cast<int>(tile_floats / 16), share = share_of(lines, parts);
    const float* tile = task.tiles + first / kSegmentTileKeys * tile_floats;
    for (int i = part * share; i < (part + 1) * share && i < lines; ++i) prefetch(tile + i * 16);
    return;
  }
  const int64_t share = share_of(kSegmentTileKeys, parts);
  for (int64_t i = part * share; i < (part + 1) * share && first + i < task.num_keys; ++i) {
    const float* key = task.keys + (first + i) * task.key_stride;
    const float* value = task.values + (first + i) * task.value_stride;
    for (int column = 0; column < task.head_dim; column += 16) {
      prefetch(key + column);
      prefetch(value + column);
    }
  }
}

template <class Products>
int64_t tile_floats(int32_t head_dim) {
  return Products::key_floats(head_dim) + Products::value_floats(head_dim);
}

template <class Products>
void pack_tile(const SegmentTile& tile) {
  Products::pack_keys(tile.keys, tile.key_stride, tile.num_keys, tile.head_dim, tile.out);
  Products::pack_values(tile.values, tile.value_stride, tile.num_keys, tile.head_dim,
                        tile.out + Products::key_floats(tile.head_dim));
}

/// One tile of `keys` keys for a block of queries.
template <class Products>
HEADRACE_SIMD_INLINE void attend_block(const float* queries, const float* tile, int keys,
                                       int head_dim, float* scores, const Running& running) {
  F32 top[kBlockVectors], references[kBlockVectors], totals[kBlockVectors];
  Products::score(queries, tile, keys, head_dim, scores, top);
  follow_scores(top, running, head_dim);
#pragma GCC unroll 2
  for (int v = 0; v < kBlockVectors; ++v) {
    references[v] = load(running.references + v * kLanes);
    totals[v] = load(running.totals + v * kLanes);
  }
  Products::weigh(scores, keys, references, totals);
#pragma GCC unroll 2
  for (int v = 0; v < kBlockVectors; ++v) store(running.totals + v * kLanes, totals[v]);
  Products::add_values(scores, tile + Products::key_floats(head_dim), keys, head_dim, running.sums);
}

template <class Products>
void attend(const SegmentTask& task) {
  constexpr float kLog2E = 0x1.715476p+0f;
  const Scratch scratch(task.scratch);
  const int head_dim = task.head_dim;
  const int64_t packed_floats = tile_floats<Products>(head_dim);
  const int blocks = share_of(task.num_queries, kBlockQueries);
  const auto block_queries = [&](int block) {
    return scratch.queries + int64_t{block} * kBlockQueries * head_dim;
  };
  for (int block = 0; block < blocks; ++block) {
    const int first = block * kBlockQueries;
    turn_queries(task.queries + first * task.query_stride, task.query_stride,
                 task.num_queries - first, head_dim, set1(task.scale * kLog2E),
                 block_queries(block));
    Products::round_queries(block_queries(block), head_dim);
    clear(scratch.block(block, head_dim), head_dim);
  }
  for (int64_t start = 0; start < task.num_keys; start += kSegmentTileKeys) {
    const int64_t left = task.num_keys - start;
    const int keys = left < kSegmentTileKeys ? static_cast<int>(left) : kSegmentTileKeys;
    const float* tile = scratch.tile;
    if (task.tiles != nullptr) {
      tile = task.tiles + start / kSegmentTileKeys * packed_floats;
    } else {
      pack_tile<Products>({task.keys + start * task.key_stride, task.key_stride,
                           task.values + start * task.value_stride, task.value_stride, keys,
                           head_dim, scratch.tile});
    }
    for (int block = 0; block < blocks; ++block) {
      fetch_part(task, start, packed_floats, block, blocks);
      attend_block<Products>(block_queries(block), tile, keys, head_dim, scratch.scores,
                             scratch.block(block, head_dim));
    }
  }
  for (int block = 0; block < blocks; ++block) {
    const int first = block * kBlockQueries;
    const int left = task.num_queries - first;
    write_output(scratch.block(block, head_dim), left < kBlockQueries ? left : kBlockQueries,
                 head_dim, task.out + first * task.out_stride, task.out_stride);
  }
}

template <class Products>
constexpr SegmentProducts kKernelsOf = {tile_floats<Products>, pack_tile<Products>,
                                        attend<Products>};

}  // namespace

#if defined(HEADRACE_HAS_BF16_DOT)
using ProductsBF16 = SegmentPairs;
#else
using ProductsBF16 = SegmentFloats;
#endif

extern const SegmentKernels kSegmentKernels;
const SegmentKernels kSegmentKernels = {kKernelsOf<SegmentFloats>, kKernelsOf<ProductsBF16>};

}  // namespace headrace::HEADRACE_ISA
