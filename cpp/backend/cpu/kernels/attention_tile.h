#pragma once

// The two products of attention over one tile of keys, for a block of query rows held in
// registers. Neither the number of rows nor of vectors taken at once changes a result.

#include "backend/cpu/kernels/kv_access.h"

namespace headrace::HEADRACE_ISA {
namespace {

constexpr int kTileGroups = kTileTokens / kKvLanes;
constexpr int kGroupVectors = kKvLanes / kLanes;
/// Query rows per register block: with two vectors per row it leaves registers for the operands.
constexpr int kBlockRows = kLanes == 16 ? 8 : 4;

/// Where a tile's 16-token groups are; groups that no row sees are null.
///
/// A group's keys, its values and the next tile's keys are as many bytes. So each line of keys that
/// is read fetches the same line of the values, and each line of values one of the next tile's
/// keys: memory is read one step ahead, at the pace of the arithmetic.
template <class Kv>
struct Tile {
  const typename Kv::Element* keys[kTileGroups];
  const typename Kv::Element* values[kTileGroups];
  const typename Kv::Element* next_keys[kTileGroups];  ///< never null where `values` is not
  int head_dim;
};

/// Vectors taken at once with `rows` rows: enough independent sums to hide the latency of fma.
constexpr int vectors_for(int rows) {
  return rows == 1 ? 8 : rows == 2 ? 4 : rows <= 4 && kLanes == 16 ? 4 : 2;
}

/// Into the second-level cache: the first-level one has too few outstanding misses to wait for
/// memory (a long decode reads 1.6 times as fast this way).
HEADRACE_SIMD_INLINE void fetch_ahead(const void* p) { __builtin_prefetch(p, 0, 2); }

/// The lines that a pair of dimensions of 16 tokens takes.
template <class Element>
HEADRACE_SIMD_INLINE void fetch_pair_ahead(const Element* p) {
  fetch_ahead(p);
  if constexpr (sizeof(Element) == 4) fetch_ahead(p + kKvLanes);
}

/// Place of a query's element in its register block: the rows' pairs of dimensions side by side.
constexpr int query_index(int row, int dim) { return (dim / 2 * kBlockRows + row) * 2 + dim % 2; }

/// scores[r][lanes] = q[r] . keys for `Vectors` vectors of keys from lane `first` of the tile on.
template <class Kv, int Rows, int Vectors>
HEADRACE_SIMD_INLINE void dot_keys(const Tile<Kv>& tile, const float* q, int first, float* scores) {
  const typename Kv::Element *group[Vectors], *ahead[Vectors];
  F32 sum[Rows][Vectors];
#pragma GCC unroll 8
  for (int v = 0; v < Vectors; ++v) {
    group[v] = tile.keys[(first + v * kLanes) / kKvLanes];
    ahead[v] = tile.values[(first + v * kLanes) / kKvLanes];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) sum[r][v] = zero();
  }
  for (int pair = 0; pair < tile.head_dim / 2; ++pair) {
    F32 keys[Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      keys[v] = Kv::even_keys(group[v], pair, (first + v * kLanes) % kKvLanes);
      if (v % kGroupVectors == 0) fetch_pair_ahead(ahead[v] + 2 * pair * kKvLanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const F32 query = set1(q[query_index(r, 2 * pair)]);
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) sum[r][v] = fma(query, keys[v], sum[r][v]);
    }
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      keys[v] = Kv::odd_keys(group[v], pair, (first + v * kLanes) % kKvLanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const F32 query = set1(q[query_index(r, 2 * pair + 1)]);
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) sum[r][v] = fma(query, keys[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      store(scores + r * kTileTokens + first + v * kLanes, sum[r][v]);
    }
  }
}

/// Scores of the tile's lanes [first, end), both multiples of kKvLanes.
template <class Kv, int Rows, int Vectors = vectors_for(Rows)>
HEADRACE_SIMD_INLINE void score_keys(const Tile<Kv>& tile, const float* q, int first, int end,
                                     float* scores) {
  for (; first + Vectors * kLanes <= end; first += Vectors * kLanes) {
    dot_keys<Kv, Rows, Vectors>(tile, q, first, scores);
  }
  if constexpr (Vectors > 1) {
    if (first < end) score_keys<Kv, Rows, Vectors / 2>(tile, q, first, end, scores);
  }
}

/// Vectors in a line of memory.
template <class Kv>
constexpr int kLineVectors = 64 / static_cast<int>(kLanes * sizeof(typename Kv::Element));

/// sums[r][column ..] += p[r][t] * value[t] for the tile's tokens t in [first, end), in order.
template <class Kv, int Rows, int Vectors>
HEADRACE_SIMD_INLINE void add_columns(const Tile<Kv>& tile, const float* p, int first, int end,
                                      int column, float* sums) {
  F32 sum[Rows][Vectors];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      sum[r][v] = load(sums + r * tile.head_dim + column + v * kLanes);
    }
  }
  while (first < end) {
    const int group = first / kKvLanes;
    const int group_end = (group + 1) * kKvLanes < end ? (group + 1) * kKvLanes : end;
    const int64_t offset = (first % kKvLanes) * tile.head_dim + column;
    const typename Kv::Element* value = tile.values[group] + offset;
    const typename Kv::Element* ahead = tile.next_keys[group] + offset;
    for (; first < group_end; ++first, value += tile.head_dim, ahead += tile.head_dim) {
      F32 wide[Vectors];
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) {
        wide[v] = Kv::widen(value + v * kLanes);
        if (v % kLineVectors<Kv> == 0) fetch_ahead(ahead + v * kLanes);
      }
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const F32 weight = set1(p[r * kTileTokens + first]);
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) sum[r][v] = fma(weight, wide[v], sum[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      store(sums + r * tile.head_dim + column + v * kLanes, sum[r][v]);
    }
  }
}

/// sums[r] += p[r] . values over the tile's tokens [first, end).
template <class Kv, int Rows, int Vectors = vectors_for(Rows)>
HEADRACE_SIMD_INLINE void add_values(const Tile<Kv>& tile, const float* p, int first, int end,
                                     float* sums, int column = 0) {
  for (; column + Vectors * kLanes <= tile.head_dim; column += Vectors * kLanes) {
    add_columns<Kv, Rows, Vectors>(tile, p, first, end, column, sums);
  }
  if constexpr (Vectors > 1) {
    if (column < tile.head_dim) {
      add_values<Kv, Rows, Vectors / 2>(tile, p, first, end, sums, column);
    }
  }
}

}  // namespace
}  // namespace headrace::HEADRACE_ISA
