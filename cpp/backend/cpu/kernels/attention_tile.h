#pragma once

// A tile of keys and the register blocks in which its two products are taken. A `Products` class
// does the arithmetic of one way of storing keys and values: FloatProducts (attention_float.h) or
// PairProducts (attention_pairs.h). It has
//
//   Weights                        the probabilities of a block's rows as the second product wants
//                                  them
//   kMasksValues, kValueStep       are there values that times 0 are not 0? tokens per addition
//   kTurnsKeys                     are there latent rows? Then turn_keys(keys, head_dim, values)
//                                  lays 16 tokens' keys out as values
//   pack_query(q, row, head_dim, block)             one scaled query into its register block
//   dot_keys<Rows, Vectors>(tile, block, first, scores)
//                                  scores[r][first ..] of `Vectors` vectors of keys
//   weigh(tile, p, visible, row, weights)           from probabilities; 0 for what it doesn't see
//   add_columns<Rows, Vectors>(tile, weights, first, end, column, sums)
//                                  sums[r][column ..] += p[r][t] * value[t] for t in [first, end)
//   add_row(tile, weights, row, first, end, sums)   one row's, whatever first and end
//
// Neither the number of rows nor of vectors taken at once changes a result.

#include "backend/cpu/kernels/kv_access.h"

namespace headrace::HEADRACE_ISA {
namespace {

constexpr int kTileGroups = kTileTokens / kKvLanes;
/// Query rows per register block: with two vectors per row it leaves registers for the operands.
constexpr int kBlockRows = kLanes == 16 ? 8 : 4;

/// Where a tile's 16-token groups are; groups that no row sees are null.
///
/// A group's keys, its values and the next tile's keys are as many bytes. So each line of keys that
/// is read fetches the same line of the values, and each line of values one of the next tile's
/// keys: memory is read one step ahead, at the pace of the arithmetic.
struct Tile {
  const uint8_t* keys[kTileGroups];
  const uint8_t* values[kTileGroups];
  const uint8_t* next_keys[kTileGroups];  ///< never null where `values` is not
  const uint8_t* key_scales[kTileGroups];
  const uint8_t* value_scales[kTileGroups];
  int head_dim;
  float cap;  ///< of scores, in units of log 2; 0: none
};

/// Lanes [first, end) of the tile that a row sees; none if first >= end.
struct Visible {
  int first;
  int end;
};

/// Vectors taken at once with `rows` rows: enough independent sums to hide the latency of fma.
constexpr int vectors_for(int rows) {
  return rows == 1 ? 8 : rows == 2 ? 4 : rows <= 4 && kLanes == 16 ? 4 : 2;
}

/// Into the second-level cache: the first-level one has too few outstanding misses to wait for
/// memory (a long decode reads 1.6 times as fast this way).
HEADRACE_SIMD_INLINE void fetch_ahead(const void* p) { __builtin_prefetch(p, 0, 2); }

/// About the lines that start in bytes [offset, offset + Bytes) of `base`.
template <int Bytes>
HEADRACE_SIMD_INLINE void fetch_lines(const uint8_t* base, int64_t offset) {
  if constexpr (Bytes >= 64) {
#pragma GCC unroll 8
    for (int i = 0; i < Bytes; i += 64) fetch_ahead(base + offset + i);
  } else {
    if (offset % 64 < Bytes) fetch_ahead(base + offset);
  }
}

/// Floats of a register block of queries; after the elements come two numbers for each row.
constexpr int64_t query_block_floats(int head_dim) {
  return static_cast<int64_t>(kBlockRows) * (head_dim + 2);
}

/// Place of a query's element in its register block: the rows' pairs of dimensions side by side.
constexpr int query_index(int row, int dim) { return (dim / 2 * kBlockRows + row) * 2 + dim % 2; }

/// Scores of the tile's lanes [first, end), both multiples of kKvLanes.
template <class Products, int Rows, int Vectors = vectors_for(Rows)>
HEADRACE_SIMD_INLINE void score_keys(const Tile& tile, const float* block, int first, int end,
                                     float* scores) {
  for (; first + Vectors * kLanes <= end; first += Vectors * kLanes) {
    Products::template dot_keys<Rows, Vectors>(tile, block, first, scores);
  }
  if constexpr (Vectors > 1) {
    if (first < end) score_keys<Products, Rows, Vectors / 2>(tile, block, first, end, scores);
  }
}

/// sums[r] += p[r] . values over the tile's tokens [first, end), multiples of kValueStep.
template <class Products, int Rows, int Vectors = vectors_for(Rows)>
HEADRACE_SIMD_INLINE void add_values(const Tile& tile, const typename Products::Weights& weights,
                                     int first, int end, float* sums, int column = 0) {
  for (; column + Vectors * kLanes <= tile.head_dim; column += Vectors * kLanes) {
    Products::template add_columns<Rows, Vectors>(tile, weights, first, end, column, sums);
  }
  if constexpr (Vectors > 1) {
    if (column < tile.head_dim) {
      add_values<Products, Rows, Vectors / 2>(tile, weights, first, end, sums, column);
    }
  }
}

}  // namespace
}  // namespace headrace::HEADRACE_ISA
