#pragma once

// The two products of attention within segments, of a block of queries and a tile of keys: in
// float32, or of bf16 numbers with float32 sums. A `Products` class has
//
//   round_queries(block, head_dim)      the block [head_dim][kBlockQueries] as score() wants it
//   key_floats(head_dim), value_floats(head_dim)
//                                       of a packed tile
//   pack_keys, pack_values(rows, stride, keys, head_dim, tile)
//                                       rows as score() and add_values() want them
//   score(block, tile, keys, head_dim, scores, top)
//                                       scores [key][query], and their maxima
//   weigh(scores, keys, references, totals)
//                                       scores to probabilities, as add_values() wants them, which
//                                       are added to the totals
//   add_values(p, tile, keys, head_dim, sums)
//                                       sums [head_dim][query] += p . values

#include "backend/cpu/simd/row_loops.h"
#include "backend/cpu/simd/simd.h"
#include "backend/cpu/vision/segment_kernels.h"

namespace headrace::HEADRACE_ISA {
namespace {

/// Vectors of queries that go through the products together, and keys or dimensions: enough
/// independent sums to hide the latency of fma, few enough for the registers.
constexpr int kBlockVectors = 2;
constexpr int kBlockQueries = kBlockVectors * kLanes;
constexpr int kBlockRows = kLanes == 16 ? 8 : 4;
static_assert(kSegmentTaskRows % kBlockQueries == 0 && kSegmentTileKeys % kBlockRows == 0);

/// Rows of a tile: whole register blocks, those behind the last one are copies of it.
template <class Store>
HEADRACE_SIMD_INLINE void for_tile_rows(const float* rows, int64_t stride, int count,
                                        const Store& store_row) {
  const int end = (count + kBlockRows - 1) / kBlockRows * kBlockRows;
  for (int row = 0; row < end; ++row) {
    store_row(row, rows + (row < count ? row : count - 1) * stride);
  }
}

constexpr int lanes_left(int count, int i) { return count - i < kLanes ? count - i : kLanes; }

struct SegmentFloats {
  static int64_t key_floats(int head_dim) {
    return int64_t{kSegmentTileKeys} * segment_row_floats(head_dim);
  }
  static int64_t value_floats(int head_dim) { return key_floats(head_dim); }

  static void round_queries(float*, int) {}

  static void pack_keys(const float* rows, int64_t stride, int keys, int head_dim, float* tile) {
    const int to_stride = segment_row_floats(head_dim);
    for_tile_rows(rows, stride, keys, [&](int row, const float* from) {
      for (int i = 0; i < head_dim; i += kLanes) {
        store(tile + row * to_stride + i, load_up_to(from + i, lanes_left(head_dim, i)));
      }
    });
  }
  static void pack_values(const float* rows, int64_t stride, int keys, int head_dim, float* tile) {
    pack_keys(rows, stride, keys, head_dim, tile);
  }

  [[gnu::noinline]] static void score(const float* block, const float* tile, int keys, int head_dim,
                                      float* scores, F32 (&top)[kBlockVectors]) {
    const int stride = segment_row_floats(head_dim);
    top[0] = top[1] = set1(-__builtin_inff());
    for (int key = 0; key < keys; key += kBlockRows) {
      F32 sum[kBlockRows][kBlockVectors];
#pragma GCC unroll 8
      for (int r = 0; r < kBlockRows; ++r) sum[r][0] = sum[r][1] = zero();
      const float* row = tile + key * stride;
      for (int dim = 0; dim < head_dim; ++dim) {
        const F32 q0 = load(block + dim * kBlockQueries);
        const F32 q1 = load(block + dim * kBlockQueries + kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < kBlockRows; ++r) {
          const F32 k = set1(row[r * stride + dim]);
          sum[r][0] = fma(k, q0, sum[r][0]);
          sum[r][1] = fma(k, q1, sum[r][1]);
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kBlockRows; ++r) {
#pragma GCC unroll 2
        for (int v = 0; v < kBlockVectors; ++v) {
          store(scores + (key + r) * kBlockQueries + v * kLanes, sum[r][v]);
          top[v] = max(sum[r][v], top[v]);
        }
      }
    }
  }

  [[gnu::noinline]] static void weigh(float* scores, int keys,
                                      const F32 (&references)[kBlockVectors],
                                      F32 (&totals)[kBlockVectors]) {
#pragma GCC unroll 4
    for (int key = 0; key < keys; ++key) {
#pragma GCC unroll 2
      for (int v = 0; v < kBlockVectors; ++v) {
        float* at = scores + key * kBlockQueries + v * kLanes;
        const F32 p = exp2(sub(load(at), references[v]));
        store(at, p);
        totals[v] = add(totals[v], p);
      }
    }
  }

  [[gnu::noinline]] static void add_values(const float* p, const float* tile, int keys,
                                           int head_dim, float* sums) {
    const int stride = segment_row_floats(head_dim);
    for (int dim = 0; dim < head_dim; dim += kBlockRows) {
      F32 sum[kBlockRows][kBlockVectors];
      float* at = sums + dim * kBlockQueries;
#pragma GCC unroll 8
      for (int r = 0; r < kBlockRows; ++r) {
        sum[r][0] = load(at + r * kBlockQueries);
        sum[r][1] = load(at + r * kBlockQueries + kLanes);
      }
      const float* row = tile + dim;
      for (int key = 0; key < keys; ++key, row += stride) {
        const F32 p0 = load(p + key * kBlockQueries), p1 = load(p + key * kBlockQueries + kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < kBlockRows; ++r) {
          const F32 x = set1(row[r]);
          sum[r][0] = fma(x, p0, sum[r][0]);
          sum[r][1] = fma(x, p1, sum[r][1]);
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kBlockRows; ++r) {
        store(at + r * kBlockQueries, sum[r][0]);
        store(at + r * kBlockQueries + kLanes, sum[r][1]);
      }
    }
  }
};

#if defined(HEADRACE_HAS_BF16_DOT)
/// Words are pairs: of dimensions in queries and keys, of keys in probabilities and values.
struct SegmentPairs {
  static uint16_t* halves(float* words) { return reinterpret_cast<uint16_t*>(words); }
  static const uint16_t* halves(const float* words) {
    return reinterpret_cast<const uint16_t*>(words);
  }
  static void store_pairs(float* p, Bf16Pairs pairs) { store(p, reinterpret_cast<F32>(pairs)); }

  static int64_t key_floats(int head_dim) {
    return int64_t{kSegmentTileKeys} * segment_row_floats(head_dim / 2);
  }
  static int64_t value_floats(int head_dim) {
    return int64_t{kSegmentTileKeys / 2} * segment_row_floats(head_dim);
  }

  static void round_queries(float* block, int head_dim) {
    for (int pair = 0; pair < head_dim / 2; ++pair) {
#pragma GCC unroll 2
      for (int v = 0; v < kBlockVectors; ++v) {
        const float* from = block + 2 * pair * kBlockQueries + v * kLanes;
        store_pairs(block + pair * kBlockQueries + v * kLanes,
                    interleave_pairs(load(from), load(from + kBlockQueries)));
      }
    }
  }

  static void pack_keys(const float* rows, int64_t stride, int keys, int head_dim, float* tile) {
    const int to_stride = segment_row_floats(head_dim / 2);
    for_tile_rows(rows, stride, keys, [&](int row, const float* from) {
      for (int i = 0; i < head_dim; i += 2 * kLanes) {
        const F32 low = load_up_to(from + i, lanes_left(head_dim, i));
        const F32 high = i + kLanes < head_dim
                             ? load_up_to(from + i + kLanes, lanes_left(head_dim, i + kLanes))
                             : zero();
        store_pairs(tile + row * to_stride + i / 2,
                    reinterpret_cast<Bf16Pairs>(narrow_pairs(low, high)));
      }
    });
  }

  static void pack_values(const float* rows, int64_t stride, int keys, int head_dim, float* tile) {
    const int to_stride = segment_row_floats(head_dim);
    for (int key = 0; key < keys; key += 2) {
      const float* from = rows + key * stride;
      for (int i = 0; i < head_dim; i += kLanes) {
        const F32 low = load_up_to(from + i, lanes_left(head_dim, i));
        const F32 high =
            key + 1 < keys ? load_up_to(from + stride + i, lanes_left(head_dim, i)) : zero();
        store_pairs(tile + key / 2 * to_stride + i, interleave_pairs(low, high));
      }
    }
  }

  [[gnu::noinline]] static void score(const float* block, const float* tile, int keys, int head_dim,
                                      float* scores, F32 (&top)[kBlockVectors]) {
    const int stride = segment_row_floats(head_dim / 2);
    top[0] = top[1] = set1(-__builtin_inff());
    for (int key = 0; key < keys; key += kBlockRows) {
      F32 sum[kBlockRows][kBlockVectors];
#pragma GCC unroll 8
      for (int r = 0; r < kBlockRows; ++r) sum[r][0] = sum[r][1] = zero();
      const float* row = tile + key * stride;
      for (int pair = 0; pair < head_dim / 2; ++pair) {
        const Bf16Pairs q0 = load_pairs(halves(block + pair * kBlockQueries));
        const Bf16Pairs q1 = load_pairs(halves(block + pair * kBlockQueries + kLanes));
#pragma GCC unroll 8
        for (int r = 0; r < kBlockRows; ++r) {
          const Bf16Pairs k = broadcast_pair(halves(row + r * stride + pair));
          sum[r][0] = dot_bf16(k, q0, sum[r][0]);
          sum[r][1] = dot_bf16(k, q1, sum[r][1]);
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kBlockRows; ++r) {
#pragma GCC unroll 2
        for (int v = 0; v < kBlockVectors; ++v) {
          store(scores + (key + r) * kBlockQueries + v * kLanes, sum[r][v]);
          top[v] = max(sum[r][v], top[v]);
        }
      }
    }
  }

  [[gnu::noinline]] static void weigh(float* scores, int keys,
                                      const F32 (&references)[kBlockVectors],
                                      F32 (&totals)[kBlockVectors]) {
#pragma GCC unroll 2
    for (int key = 0; key < keys; key += 2) {
#pragma GCC unroll 2
      for (int v = 0; v < kBlockVectors; ++v) {
        const float* from = scores + key * kBlockQueries + v * kLanes;
        const F32 low = exp2(sub(load(from), references[v]));
        F32 high = zero();
        totals[v] = add(totals[v], low);
        if (key + 1 < keys) {
          high = exp2(sub(load(from + kBlockQueries), references[v]));
          totals[v] = add(totals[v], high);
        }
        // Behind what is still to be read.
        store_pairs(scores + key / 2 * kBlockQueries + v * kLanes, interleave_pairs(low, high));
      }
    }
  }

  [[gnu::noinline]] static void add_values(const float* p, const float* tile, int keys,
                                           int head_dim, float* sums) {
    const int stride = segment_row_floats(head_dim);
    const int pairs = (keys + 1) / 2;
    for (int dim = 0; dim < head_dim; dim += kBlockRows) {
      F32 sum[kBlockRows][kBlockVectors];
      float* at = sums + dim * kBlockQueries;
#pragma GCC unroll 8
      for (int r = 0; r < kBlockRows; ++r) {
        sum[r][0] = load(at + r * kBlockQueries);
        sum[r][1] = load(at + r * kBlockQueries + kLanes);
      }
      const float* row = tile + dim;
      for (int pair = 0; pair < pairs; ++pair, row += stride) {
        const Bf16Pairs p0 = load_pairs(halves(p + pair * kBlockQueries));
        const Bf16Pairs p1 = load_pairs(halves(p + pair * kBlockQueries + kLanes));
#pragma GCC unroll 8
        for (int r = 0; r < kBlockRows; ++r) {
          const Bf16Pairs x = broadcast_pair(halves(row + r));
          sum[r][0] = dot_bf16(x, p0, sum[r][0]);
          sum[r][1] = dot_bf16(x, p1, sum[r][1]);
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kBlockRows; ++r) {
        store(at + r * kBlockQueries, sum[r][0]);
        store(at + r * kBlockQueries + kLanes, sum[r][1]);
      }
    }
  }
};
#endif

}  // namespace
}  // namespace headrace::HEADRACE_ISA
