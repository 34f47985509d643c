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

/// Scores of `keys` keys to probabilities relative to the references, which are added to the
/// totals.
HEADRACE_SIMD_INLINE void to_probabilities(float* scores, int keys, const Running& running) {
  F32 reference[kBlockVectors], total[kBlockVectors];
#pragma GCC unroll 2
  for (int v = 0; v < kBlockVectors; ++v) {
    reference[v] = load(running.references + v * kLanes);
    total[v] = load(running.totals + v * kLanes);
  }
#pragma GCC unroll 4
  for (int key = 0; key < keys; ++key) {
#pragma GCC unroll 2
    for (int v = 0; v < kBlockVectors; ++v) {
      float* at = scores + key * kBlockQueries + v * kLanes;
      const F32 p = exp2(sub(load(at), reference[v]));
      store(at, p);
      total[v] = add(total[v], p);
    }
  }
#pragma GCC unroll 2
  for (int v = 0; v < kBlockVectors; ++v) store(running.totals + v * kLanes, total[v]);
}

/// Where a task's things lie in its scratch.
struct Scratch {
  float* queries;  ///< [blocks][head_dim][kBlockQueries], scaled
  float* sums;     ///< the same
  float* references;
  float* totals;
  float* keys;    ///< a tile
  float* values;  ///< a tile
  float* scores;  ///< [kSegmentTileKeys][kBlockQueries]

  explicit Scratch(float* memory) {
    constexpr int64_t kQueryFloats = int64_t{kSegmentTaskRows} * kSegmentHeadDim;
    constexpr int64_t kTileFloats = int64_t{kSegmentTileKeys} * (kSegmentHeadDim + 16);
    queries = memory;
    sums = queries + kQueryFloats;
    references = sums + kQueryFloats;
    totals = references + kSegmentTaskRows;
    keys = totals + kSegmentTaskRows;
    values = keys + kTileFloats;
    scores = values + kTileFloats;
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

/// A block's share of fetching the next tile's keys and values.
void fetch_rows(const SegmentTask& task, int64_t first, int64_t end) {
  for (int64_t key = first; key < end && key < task.num_keys; ++key) {
    for (int i = 0; i < task.head_dim; i += 16) {
      prefetch(task.keys + key * task.key_stride + i);
      prefetch(task.values + key * task.value_stride + i);
    }
  }
}

template <class Products>
void attend(const SegmentTask& task) {
  constexpr float kLog2E = 0x1.715476p+0f;
  const Scratch scratch(task.scratch);
  const int head_dim = task.head_dim;
  const int blocks = (task.num_queries + kBlockQueries - 1) / kBlockQueries;
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
  const int fetched = (kSegmentTileKeys + blocks - 1) / blocks;
  for (int64_t start = 0; start < task.num_keys; start += kSegmentTileKeys) {
    const int64_t left = task.num_keys - start;
    const int keys = left < kSegmentTileKeys ? static_cast<int>(left) : kSegmentTileKeys;
    Products::pack_keys(task.keys + start * task.key_stride, task.key_stride, keys, head_dim,
                        scratch.keys);
    Products::pack_values(task.values + start * task.value_stride, task.value_stride, keys,
                          head_dim, scratch.values);
    for (int block = 0; block < blocks; ++block) {
      const Running running = scratch.block(block, head_dim);
      F32 top[kBlockVectors];
      const int64_t next = start + kSegmentTileKeys + int64_t{block} * fetched;
      fetch_rows(task, next, next + fetched);
      Products::score(block_queries(block), scratch.keys, keys, head_dim, scratch.scores, top);
      follow_scores(top, running, head_dim);
      to_probabilities(scratch.scores, keys, running);
      Products::add_values(scratch.scores, scratch.values, keys, head_dim, running.sums);
    }
  }
  for (int block = 0; block < blocks; ++block) {
    const int first = block * kBlockQueries;
    const int left = task.num_queries - first;
    write_output(scratch.block(block, head_dim), left < kBlockQueries ? left : kBlockQueries,
                 head_dim, task.out + first * task.out_stride, task.out_stride);
  }
}

}  // namespace

#if defined(HEADRACE_HAS_BF16_DOT)
using ProductsBF16 = SegmentPairs;
#else
using ProductsBF16 = SegmentFloats;
#endif

extern const SegmentKernels kSegmentKernels;
const SegmentKernels kSegmentKernels = {attend<SegmentFloats>, attend<ProductsBF16>};

}  // namespace headrace::HEADRACE_ISA
