#pragma once

// The products of attention in float32, over keys and values widened from any floating type.

#include "backend/cpu/kernels/attention_tile.h"

namespace headrace::HEADRACE_ISA {
namespace {

template <class Kv>
struct FloatProducts {
  using Element = typename Kv::Element;
  struct Weights {
    const float* rows[kBlockRows];
  };
  static constexpr bool kMasksValues = true;
  static constexpr bool kTurnsKeys = sizeof(Element) > 1;
  static constexpr int kValueStep = 1;

  static void turn_keys(const uint8_t* keys, int head_dim, uint8_t* values) {
    Kv::turn(reinterpret_cast<const Element*>(keys), head_dim, reinterpret_cast<Element*>(values));
  }

  static void pack_query(const float* q, int row, int head_dim, float* block) {
    for (int i = 0; i < head_dim; i += 2) {
      __builtin_memcpy(block + query_index(row, i), q + i, 2 * sizeof(float));
    }
  }

  template <int Rows, int Vectors>
  HEADRACE_SIMD_INLINE static void dot_keys(const Tile& tile, const float* block, int first,
                                            float* scores) {
    F32 sum[Rows][Vectors];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) sum[r][v] = zero();
    }
    for (int pair = 0; pair < tile.head_dim / 2; ++pair) {
#pragma GCC unroll 2
      for (int odd = 0; odd < 2; ++odd) {
        const int dim = 2 * pair + odd;
        F32 keys[Vectors];
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) {
          const int group = (first + v * kLanes) / kKvLanes, lane = (first + v * kLanes) % kKvLanes;
          keys[v] = Kv::keys(elements(tile.keys[group]), dim, lane);
          constexpr int kPairBytes = 2 * kKvLanes * static_cast<int>(sizeof(Element));
          if (odd == 0 && v % (kKvLanes / kLanes) == 0) {
            fetch_lines<kPairBytes>(tile.values[group], pair * kPairBytes);
          }
        }
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
          const F32 query = set1(block[query_index(r, dim)]);
#pragma GCC unroll 8
          for (int v = 0; v < Vectors; ++v) sum[r][v] = fma(query, keys[v], sum[r][v]);
        }
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

  static void weigh(const Tile&, const float* p, Visible, int row, Weights& weights) {
    weights.rows[row] = p;
  }

  template <int Rows, int Vectors>
  HEADRACE_SIMD_INLINE static void add_columns(const Tile& tile, const Weights& weights, int first,
                                               int end, int column, float* sums) {
    F32 sum[Rows][Vectors];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) {
        sum[r][v] = load(sums + r * tile.head_dim + column + v * kLanes);
      }
    }
    for (; first < end; ++first) {
      const int group = first / kKvLanes, lane = first % kKvLanes;
      F32 values[Vectors];
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) {
        values[v] =
            Kv::values(elements(tile.values[group]), lane, column + v * kLanes, tile.head_dim);
      }
      constexpr int kSize = static_cast<int>(sizeof(Element));
      fetch_lines<Vectors * kLanes * kSize>(tile.next_keys[group],
                                            (lane * tile.head_dim + column) * kSize);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const F32 weight = set1(weights.rows[r][first]);
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) sum[r][v] = fma(weight, values[v], sum[r][v]);
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

  static void add_row(const Tile& tile, const Weights& weights, int row, int first, int end,
                      float* sums) {
    const Weights one{{weights.rows[row]}};
    add_values<FloatProducts, 1>(tile, one, first, end, sums);
  }

 private:
  HEADRACE_SIMD_INLINE static const Element* elements(const uint8_t* group) {
    return reinterpret_cast<const Element*>(group);
  }
};

/// Of float8_e4m3: a token's key has its scale behind the product, its value in the probability.
struct Float8Products {
  using Plain = FloatProducts<KvF8>;
  struct Weights {
    alignas(64) float p[kBlockRows][kTileTokens];
  };
  static constexpr bool kMasksValues = true;
  static constexpr bool kTurnsKeys = false;
  static constexpr int kValueStep = 1;
  static constexpr float kUnit = 256.0f;  ///< KvF8's numbers are that many times smaller

  static void pack_query(const float* q, int row, int head_dim, float* block) {
    Plain::pack_query(q, row, head_dim, block);
  }

  template <int Rows, int Vectors>
  HEADRACE_SIMD_INLINE static void dot_keys(const Tile& tile, const float* block, int first,
                                            float* scores) {
    Plain::template dot_keys<Rows, Vectors>(tile, block, first, scores);
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      const int key = first + v * kLanes;
      const F32 scale = mul(load(scales(tile.key_scales, key)), set1(kUnit));
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        float* const score = scores + r * kTileTokens + key;
        store(score, mul(load(score), scale));
      }
    }
  }

  static void weigh(const Tile& tile, const float* p, Visible visible, int row, Weights& weights) {
    for (int key = visible.first; key < visible.end; ++key) {
      weights.p[row][key] = p[key] * (*scales(tile.value_scales, key) * kUnit);
    }
  }

  template <int Rows, int Vectors>
  HEADRACE_SIMD_INLINE static void add_columns(const Tile& tile, const Weights& weights, int first,
                                               int end, int column, float* sums) {
    Plain::Weights plain;
    for (int r = 0; r < Rows; ++r) plain.rows[r] = weights.p[r];
    Plain::template add_columns<Rows, Vectors>(tile, plain, first, end, column, sums);
  }

  static void add_row(const Tile& tile, const Weights& weights, int row, int first, int end,
                      float* sums) {
    const Plain::Weights one{{weights.p[row]}};
    add_values<Plain, 1>(tile, one, first, end, sums);
  }

 private:
  HEADRACE_SIMD_INLINE static const float* scales(const uint8_t* const (&groups)[kTileGroups],
                                                  int key) {
    return reinterpret_cast<const float*>(groups[key / kKvLanes]) + key % kKvLanes;
  }
};

}  // namespace
}  // namespace headrace::HEADRACE_ISA
