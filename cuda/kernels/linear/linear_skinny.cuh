#pragma once

// A product of few rows: each warp has 16 features, all tokens of its block and all of k, so that
// no sum is divided. Units of the weight stream through the warp's own part of shared memory.

#include "cuda/device/cp_async.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/kernels/linear/linear_epilogue.cuh"

namespace headrace::cuda::skinny {

inline constexpr int kFeatures = 16;  // of a warp
inline constexpr int kUnit = static_cast<int>(kWeightColUnit);
inline constexpr int kRowBytes = kUnit * 2;  // of a stage: eight chunks of 16 bytes
inline constexpr int kChunks = kRowBytes / 16;

/// What doesn't depend on the block.
template <class T>
struct Weights {
  const T* data;
  int64_t stride;
  int64_t stored_rows;
  int64_t k;
  int units;  // of k
};

template <class T>
Weights<T> weights_of(const void* data, const WeightLayout& layout) {
  return {static_cast<const T*>(data), layout.stride(), layout.stored_rows(), layout.k,
          static_cast<int>(layout.stride() / kUnit)};
}

/// A block's tokens: rows of a matrix, side by side.
template <class T>
struct DenseTokens {
  const T* x;
  int64_t stride;
  int rows;
  bool vectors;

  __device__ const T* at(int row) const { return x + row * stride; }
  /// The `i`th row whose chunks this lane copies is `row`.
  __device__ const T* of_lane(int, int row) const { return at(row); }
};

/// Byte of a chunk in a stage: ldmatrix, which takes a chunk of 8 rows, meets every bank once, and
/// so do copies of a row.
__device__ inline int chunk_byte(int row, int chunk) {
  return row * kRowBytes + (chunk ^ (row & 7)) * 16;
}

/// Units of k that a warp holds in its own part of shared memory: rows of the weight, then tokens.
template <class T, class Tokens, int kTokenTiles, int kStages>
struct WarpRing {
  static constexpr int kTokens = 8 * kTokenTiles;
  static constexpr int kBytes = (kFeatures + kTokens) * kRowBytes;
  using Sums = float[kTokenTiles][4];

  const Weights<T>& weights;
  const T* weight;  // of the warp's first feature
  const Tokens& tokens;
  char* memory;

  __device__ char* stage(int unit) const { return memory + unit % kStages * kBytes; }

  __device__ void load_weight(int unit) const {
    HEADRACE_UNROLL
    for (int i = 0; i < kFeatures * kChunks / kWarp; ++i) {
      const int row = i * (kWarp / kChunks) + lane_id() / kChunks, chunk = lane_id() % kChunks;
      copy_async_16(stage(unit) + chunk_byte(row, chunk),
                    weight + row * weights.stride + unit * kUnit + chunk * 8);
    }
  }

  /// Eight elements of a token; zeros beyond its end.
  __device__ Vector<T> token_chunk(const T* token, int64_t k0) const {
    const T* from = token + k0;
    if (tokens.vectors && k0 + 8 <= weights.k) return load_vector(from);
    Vector<T> values = {};
    for (int i = 0; i < 8; ++i) {
      if (k0 + i < weights.k) values.at[i] = from[i];
    }
    return values;
  }

  /// Tokens that aren't there stay as they are: nobody reads their sums.
  __device__ void load_tokens(int unit) const {
    char* to = stage(unit) + kFeatures * kRowBytes;
    HEADRACE_UNROLL
    for (int i = 0; i < kTokens * kChunks / kWarp; ++i) {
      const int row = i * (kWarp / kChunks) + lane_id() / kChunks, chunk = lane_id() % kChunks;
      if (row >= tokens.rows) continue;
      const T* token = tokens.of_lane(i, row);
      const int64_t k0 = int64_t{unit} * kUnit + chunk * 8;
      if (tokens.vectors) {
        const int64_t left = greatest<int64_t>(weights.k - k0, 0);
        copy_async_16(to + chunk_byte(row, chunk), token + (left > 0 ? k0 : 0),
                      static_cast<int>(least<int64_t>(left, 8)) * 2);
      } else {
        store_vector(reinterpret_cast<T*>(to + chunk_byte(row, chunk)), token_chunk(token, k0));
      }
    }
  }

  /// The same for the first units at once, through registers: their weights may still be under way.
  __device__ void load_first_tokens(int count) const {
    constexpr int kAtOnce = 4;
    const int chunks = count * kChunks;
    for (int row = 0; row < tokens.rows; ++row) {
      const T* token = tokens.at(row);
      for (int first = lane_id(); first < chunks; first += kAtOnce * kWarp) {
        Vector<T> held[kAtOnce];
        HEADRACE_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          const int c = first + i * kWarp;
          if (c < chunks) held[i] = token_chunk(token, int64_t{c} * 8);
        }
        HEADRACE_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          const int c = first + i * kWarp;
          if (c >= chunks) continue;
          char* to = stage(c / kChunks) + kFeatures * kRowBytes;
          store_vector(reinterpret_cast<T*>(to + chunk_byte(row, c % kChunks)), held[i]);
        }
      }
    }
  }

  __device__ void multiply(int unit, Sums& sums) const {
    const char* features = stage(unit);
    const char* rows = features + kFeatures * kRowBytes;
    const int lane = lane_id();
    HEADRACE_UNROLL
    for (int pair = 0; pair < kChunks / 4; ++pair) {  // of steps of 16 k
      uint32_t b[kTokenTiles][4];
      HEADRACE_UNROLL
      for (int t = 0; t < kTokenTiles; ++t) {
        load_matrices(b[t], rows + chunk_byte(8 * t + lane % 8, 4 * pair + lane / 8));
      }
      HEADRACE_UNROLL
      for (int step = 0; step < 2; ++step) {
        uint32_t a[4];
        load_matrices(a, features + chunk_byte(lane % 16, 4 * pair + 2 * step + lane / 16));
        HEADRACE_UNROLL
        for (int t = 0; t < kTokenTiles; ++t) {
          const uint32_t own[2] = {b[t][2 * step], b[t][2 * step + 1]};
          mma_16x8x16<T>(sums[t], a, own);
        }
      }
    }
  }

  __device__ void load_first_weights() const {
    HEADRACE_UNROLL
    for (int s = 0; s < kStages - 1; ++s) {
      if (s < weights.units) load_weight(s);
      copy_async_commit();
    }
  }

  /// sums += all products; kStages units of the weight are on their way. REQUIRES:
  /// load_first_weights(), and that the tokens are there.
  __device__ void multiply_all(Sums& sums) const {
    load_first_tokens(least(kStages - 1, weights.units));
    HEADRACE_NO_UNROLL
    for (int unit = 0; unit < weights.units; ++unit) {
      copy_async_wait<kStages - 2>();
      __syncwarp();
      const int next = unit + kStages - 1;
      if (next < weights.units) {
        load_weight(next);
        load_tokens(next);
      }
      copy_async_commit();
      multiply(unit, sums);
    }
  }
};

/// A warp's sums of `rows` tokens with stored rows [first, first + 16), to rows from `first_row`
/// on.
template <int kTokenTiles, class T, class Out>
__device__ void write_warp_sums(const float (&sums)[kTokenTiles][4], int rows, int64_t first_row,
                                int64_t first, const LinearOutput<T, Out>& out) {
  const auto [g, q] = lane_place();
  HEADRACE_UNROLL
  for (int i = 0; i < kTokenTiles * 2; ++i) {
    const int row = i / 2 * 8 + 2 * q + i % 2;
    if (row >= rows) continue;
    const float low = sums[i / 2][i % 2], high = sums[i / 2][2 + i % 2];
    if (out.gate_mul) {
      out.store_gated(first_row + row, first / 2 + g, low, high);
    } else {
      out.store_feature(first_row + row, first + g, low);
      out.store_feature(first_row + row, first + 8 + g, high);
    }
  }
}

}  // namespace headrace::cuda::skinny
