#pragma once

// The products of attention as dot products of pairs: of bf16 numbers, or of integers.

#include "backend/cpu/kernels/attention_tile.h"
#include "backend/cpu/simd/int8.h"

namespace headrace::HEADRACE_ISA {
namespace {

/// A block's probabilities as pairs of 16 bits; integers have a factor for each row.
struct PairWeights {
  alignas(64) uint16_t p[kBlockRows][kTileTokens];
  float factor[kBlockRows];
  float offset[kBlockRows];  ///< what a row adds to all dimensions
};

#if defined(HEADRACE_HAS_BF16_DOT)
struct DotBF16 {
  using Vector = Bf16Pairs;
  using Sum = F32;
  static constexpr bool kMasksValues = true;
  static constexpr bool kTurnsKeys = true;
  static constexpr int kPairBytes = 4;  ///< of a pair in the cache
  static int padded(int head_dim) { return head_dim; }

  static Sum none() { return zero(); }
  static Vector keys(const uint8_t* group, int pair, int lane) {
    return load_pairs(reinterpret_cast<const uint16_t*>(group) +
                      pair_place(2 * pair, lane, kKvLanes));
  }
  static Vector values(const uint8_t* group, int pair, int dim, int head_dim) {
    return load_pairs(reinterpret_cast<const uint16_t*>(group) +
                      pair_place(2 * pair, dim, head_dim));
  }
  static Vector broadcast(const uint16_t* p) { return broadcast_pair(p); }
  static Sum dot(Vector a, Vector b, Sum c) { return dot_bf16(a, b, c); }

  static void round_query(const float* q, int head_dim, uint16_t* out, float*, float*) {
    for (int i = 0; i < head_dim; i += kLanes) store_bf16_normal(out + i, load(q + i));
  }
  static F32 score(Sum sum, const uint8_t*, int, float, float) { return sum; }

  static void weigh(const Tile&, const float* p, int begin, int end, int row,
                    PairWeights& weights) {
    for (int i = begin; i < end; i += kLanes) store_bf16_normal(weights.p[row] + i, load(p + i));
  }
  static Sum begin_sum(const float* sums) { return load(sums); }
  static F32 end_sum(Sum sum, const float*, float, float) { return sum; }
};
#endif

/// Queries and probabilities as int16: 32767 is the largest one of a head, or of a tile.
constexpr float kLargestWord = 32767.0f;
/// Below it numbers count as 0, so that no reciprocal overflows.
constexpr float kSmallestScaled = 1e-30f;

/// NaN if one of the numbers is not finite, else 0.
HEADRACE_SIMD_INLINE float taint(F32 sum) { return 0.0f * reduce_add(sum); }

HEADRACE_SIMD_INLINE F32 absolute(F32 v) { return max(v, sub(zero(), v)); }

/// What int8 and uint4 have in common: words, and sums of integers.
struct DotWords {
  using Vector = Words;
  using Sum = I32;
  static constexpr bool kMasksValues = false;
  static constexpr bool kTurnsKeys = false;

  static Sum none() { return set1_i32(0); }
  static Vector broadcast(const uint16_t* p) { return broadcast_words(p); }
  static Sum dot(Vector a, Vector b, Sum c) { return dot_words(a, b, c); }

  /// q = scale * out; *total = scale * sum(out).
  static void round_query(const float* q, int head_dim, uint16_t* out, float* scale, float* total) {
    F32 top = zero(), sum = zero();
    for (int i = 0; i < head_dim; i += kLanes) {
      top = max(absolute(load(q + i)), top);
      sum = add(sum, absolute(load(q + i)));
    }
    const float largest = reduce_max(top);
    const F32 inverse = set1(largest > kSmallestScaled ? kLargestWord / largest : 0.0f);
    I32 words = set1_i32(0);
    for (int i = 0; i < head_dim; i += kLanes) {
      const I32 word = to_i32(mul(load(q + i), inverse));
      store_i16(reinterpret_cast<int16_t*>(out) + i, word);
      words = add_i32(words, word);
    }
    *scale = largest / kLargestWord + taint(sum);
    *total = *scale * static_cast<float>(reduce_i32(words));
  }

  static Sum begin_sum(const float*) { return none(); }
  static F32 end_sum(Sum sum, const float* sums, float factor, float offset) {
    return add(fma(to_f32(sum), set1(factor), load(sums)), set1(offset));
  }

  /// weights.p[row] = p / the row's factor. The tokens' scales are in `p` already.
  static void round_weights(const float* p, F32 top, F32 sum, int begin, int end, int row,
                            PairWeights& weights) {
    const float largest = reduce_max(top);
    const F32 inverse = set1(largest > kSmallestScaled ? kLargestWord / largest : 0.0f);
    auto* words = reinterpret_cast<int16_t*>(weights.p[row]);
    for (int i = begin; i < end; i += kLanes)
      store_i16(words + i, to_i32(mul(load(p + i), inverse)));
    weights.factor[row] = largest / kLargestWord + taint(sum);
  }
};

struct DotI8 : DotWords {
  static constexpr int kPairBytes = 2;
  static int padded(int head_dim) { return head_dim; }
  static Vector keys(const uint8_t* group, int pair, int lane) {
    return load_i8_pairs(group + pair_place(2 * pair, lane, kKvLanes));
  }
  static Vector values(const uint8_t* group, int pair, int dim, int head_dim) {
    return load_i8_pairs(group + pair_place(2 * pair, dim, head_dim));
  }
  static F32 score(Sum sum, const uint8_t* scales, int lane, float scale, float) {
    return mul(to_f32(sum), mul(load(reinterpret_cast<const float*>(scales) + lane), set1(scale)));
  }
  static void weigh(const Tile& tile, const float* p, int begin, int end, int row,
                    PairWeights& weights) {
    float scaled[kTileTokens];
    F32 top = zero(), sum = zero();
    for (int i = begin; i < end; i += kLanes) {
      const auto* scales = reinterpret_cast<const float*>(tile.value_scales[i / kKvLanes]);
      const F32 x = load(p + i);
      // An unseen token's scale may be anything.
      const F32 y = select_greater(x, zero(), mul(x, load(scales + i % kKvLanes)), zero());
      store(scaled + i, y);
      top = max(y, top);
      sum = add(sum, y);
    }
    round_weights(scaled, top, sum, begin, end, row, weights);
    weights.offset[row] = 0.0f;
  }
};

struct DotU4 : DotWords {
  static constexpr int kPairBytes = 1;
  static int padded(int head_dim) { return (head_dim + 31) / 32 * 32; }
  static Vector keys(const uint8_t* group, int pair, int lane) {
    return nibbles(load_u8_pairs(group + (pair / 2 * kKvLanes + lane) * 2), pair % 2 * 4);
  }
  static Vector values(const uint8_t* group, int pair, int dim, int head_dim) {
    const int64_t bytes = (pair * padded(head_dim) + dim / 32 * 32) / 2 + dim % 16;
    return nibbles(load_u8_pairs(group + bytes * 2), dim / 16 % 2 * 4);
  }
  static F32 score(Sum sum, const uint8_t* scales, int lane, float scale, float total) {
    const auto* pairs = reinterpret_cast<const uint16_t*>(scales) + 2 * lane;
    return fma(to_f32(sum), mul(load_bf16_even(pairs), set1(scale)),
               mul(load_bf16_odd(pairs), set1(total)));
  }
  static void weigh(const Tile& tile, const float* p, int begin, int end, int row,
                    PairWeights& weights) {
    float scaled[kTileTokens];
    F32 top = zero(), sum = zero(), low = zero();
    for (int i = begin; i < end; i += kLanes) {
      const auto* pairs =
          reinterpret_cast<const uint16_t*>(tile.value_scales[i / kKvLanes]) + 2 * (i % kKvLanes);
      const F32 x = load(p + i);
      const F32 y = select_greater(x, zero(), mul(x, load_bf16_even(pairs)), zero());
      store(scaled + i, y);
      top = max(y, top);
      sum = add(sum, y);
      low = add(low, select_greater(x, zero(), mul(x, load_bf16_odd(pairs)), zero()));
    }
    round_weights(scaled, top, sum, begin, end, row, weights);
    weights.offset[row] = reduce_add(low);
  }
};

template <class Dot>
struct PairProducts {
  using Weights = PairWeights;
  using Vector = typename Dot::Vector;
  using Sum = typename Dot::Sum;
  static constexpr bool kMasksValues = Dot::kMasksValues;
  static constexpr bool kTurnsKeys = Dot::kTurnsKeys;
  static constexpr int kValueStep = 2;
  static constexpr int kGroupPairs = kKvLanes / 2;

  static void turn_keys(const uint8_t* keys, int head_dim, uint8_t* values) {
    turn_pairs(reinterpret_cast<const uint16_t*>(keys), head_dim,
               reinterpret_cast<uint16_t*>(values));
  }

  static void pack_query(const float* q, int row, int head_dim, float* block) {
    uint16_t rounded[kMaxLatent];
    float* numbers = block + numbers_offset(head_dim) + 2 * row;
    Dot::round_query(q, head_dim, rounded, numbers, numbers + 1);
    auto* to = reinterpret_cast<uint16_t*>(block);
    for (int i = 0; i < head_dim; i += 2) {
      __builtin_memcpy(to + query_index(row, i), rounded + i, 2 * sizeof(uint16_t));
    }
  }

  template <int Rows, int Vectors>
  HEADRACE_SIMD_INLINE static void dot_keys(const Tile& tile, const float* block, int first,
                                            float* scores) {
    const auto* q = reinterpret_cast<const uint16_t*>(block);
    constexpr int kTwoPairs = 2 * kKvLanes * Dot::kPairBytes;
    Sum sum[Rows][Vectors];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) sum[r][v] = Dot::none();
    }
    for (int two = 0; two < tile.head_dim / 2; two += 2) {
#pragma GCC unroll 2
      for (int odd = 0; odd < 2; ++odd) {
        const int pair = two + odd;
        Vector keys[Vectors];
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) {
          const int group = (first + v * kLanes) / kKvLanes, lane = (first + v * kLanes) % kKvLanes;
          keys[v] = Dot::keys(tile.keys[group], pair, lane);
          if (odd == 0 && v % (kKvLanes / kLanes) == 0) {
            fetch_lines<kTwoPairs>(tile.values[group], two / 2 * kTwoPairs);
          }
        }
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
          const Vector query = Dot::broadcast(q + query_index(r, 2 * pair));
#pragma GCC unroll 8
          for (int v = 0; v < Vectors; ++v) sum[r][v] = Dot::dot(keys[v], query, sum[r][v]);
        }
      }
    }
    const float* numbers = block + numbers_offset(tile.head_dim);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) {
        const int lane = first + v * kLanes;
        store(scores + r * kTileTokens + lane,
              Dot::score(sum[r][v], tile.key_scales[lane / kKvLanes], lane % kKvLanes,
                         numbers[2 * r], numbers[2 * r + 1]));
      }
    }
  }

  static void weigh(const Tile& tile, const float* p, Visible visible, int row, Weights& weights) {
    const int begin = visible.first / kLanes * kLanes;
    const int end = visible.end <= visible.first ? begin : visible.end;
    for (int i = 0; i < kTileTokens; i += 2 * kLanes) {
      store(reinterpret_cast<float*>(weights.p[row] + i), zero());
    }
    Dot::weigh(tile, p, begin, end, row, weights);
  }

  template <int Rows, int Vectors>
  HEADRACE_SIMD_INLINE static void add_columns(const Tile& tile, const Weights& weights, int first,
                                               int end, int column, float* sums) {
    const int head_dim = tile.head_dim;
    const int stride = Dot::padded(head_dim) * Dot::kPairBytes;
    Sum sum[Rows][Vectors];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) {
        sum[r][v] = Dot::begin_sum(sums + r * head_dim + column + v * kLanes);
      }
    }
    for (int pair = first / 2; pair < end / 2; ++pair) {
      const int group = pair / kGroupPairs, in_group = pair % kGroupPairs;
      Vector values[Vectors];
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) {
        values[v] = Dot::values(tile.values[group], in_group, column + v * kLanes, head_dim);
      }
      fetch_lines<Vectors * kLanes * Dot::kPairBytes>(tile.next_keys[group],
                                                      in_group * stride + column * Dot::kPairBytes);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const Vector weight = Dot::broadcast(weights.p[r] + 2 * pair);
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) sum[r][v] = Dot::dot(values[v], weight, sum[r][v]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) {
        float* to = sums + r * head_dim + column + v * kLanes;
        store(to, Dot::end_sum(sum[r][v], to, weights.factor[r], weights.offset[r]));
      }
    }
  }

  /// Of a pair that the row sees half of, the other half is taken out: times 0 it might be NaN.
  static void add_row(const Tile& tile, const Weights& weights, int row, int first, int end,
                      float* sums) {
    for (int token = first / 2 * 2; token < end; token += 2) {
      const uint32_t halves =
          (token >= first ? 0x0000ffffu : 0u) | (token + 1 < end ? 0xffff0000u : 0u);
      const Vector weight = Dot::broadcast(weights.p[row] + token);
      const uint8_t* group = tile.values[token / kKvLanes];
      for (int i = 0; i < tile.head_dim; i += kLanes) {
        const Vector values =
            keep_halves(Dot::values(group, token / 2 % kGroupPairs, i, tile.head_dim), halves);
        store(sums + i, Dot::dot(values, weight, load(sums + i)));
      }
    }
  }

 private:
  /// Of a block's numbers, two for each row.
  static int64_t numbers_offset(int head_dim) {
    return static_cast<int64_t>(kBlockRows) * head_dim;
  }
};

}  // namespace
}  // namespace headrace::HEADRACE_ISA
