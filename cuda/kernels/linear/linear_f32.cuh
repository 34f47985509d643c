#pragma once

// A tile of a float32 product: each sum is one chain of fused multiply-adds over ascending k.

#include "cuda/kernels/linear/linear_epilogue.cuh"

namespace headrace::cuda::f32 {

inline constexpr int kTokens = 32, kFeatures = 64, kDepth = 16, kThreads = 256;
inline constexpr int kTokensEach = 4, kFeaturesEach = 2;
inline constexpr int kPadding = 1;
static_assert(kFeatures == kWeightRowUnit && kWeightColUnit % kDepth == 0);

/// What a block multiplies.
struct Product {
  int rows;  ///< kTokens at most
  int64_t k;
};

/// Rows [first_row, first_row + product.rows) of `out`, stored rows from `first_feature` on. A
/// thread has 4 rows x 2 features. token(row): where a row of x begins. weight(row, k): of stored
/// row first_feature + row, also for k behind the last up to a whole kDepth. By all threads of a
/// block.
template <class Token, class Weight>
__device__ void multiply_tile(const Product& product, const Token& token, const Weight& weight,
                              int64_t first_row, int64_t first_feature,
                              const LinearOutput<float, float>& out) {
  __shared__ float x_tile[kDepth][kTokens + kPadding];
  __shared__ float weight_tile[kDepth][kFeatures + kPadding];
  __shared__ float4 sums_memory[kTokens * kFeatures / 4];
  auto* sums_tile = reinterpret_cast<float*>(sums_memory);
  const int thread = static_cast<int>(threadIdx.x);
  const int column = thread % (kFeatures / kFeaturesEach);
  const int line = thread / (kFeatures / kFeaturesEach);
  float sums[kTokensEach][kFeaturesEach] = {};
  for (int64_t k0 = 0; k0 < product.k; k0 += kDepth) {
    for (int i = thread; i < kTokens * kDepth; i += kThreads) {
      const int row = i / kDepth;
      const int64_t k = k0 + i % kDepth;
      const bool exists = row < product.rows && k < product.k;
      x_tile[i % kDepth][row] = exists ? token(row)[k] : 0.0f;
    }
    for (int i = thread; i < kFeatures * kDepth; i += kThreads) {
      weight_tile[i % kDepth][i / kDepth] = weight(i / kDepth, k0 + i % kDepth);
    }
    __syncthreads();
    HEADRACE_UNROLL
    for (int k = 0; k < kDepth; ++k) {
      HEADRACE_UNROLL
      for (int t = 0; t < kTokensEach; ++t) {
        HEADRACE_UNROLL
        for (int f = 0; f < kFeaturesEach; ++f) {
          sums[t][f] = fmaf(x_tile[k][line * kTokensEach + t],
                            weight_tile[k][column * kFeaturesEach + f], sums[t][f]);
        }
      }
    }
    __syncthreads();
  }
  for (int t = 0; t < kTokensEach; ++t) {
    for (int f = 0; f < kFeaturesEach; ++f) {
      sums_tile[(line * kTokensEach + t) * kFeatures + column * kFeaturesEach + f] = sums[t][f];
    }
  }
  __syncthreads();
  write_sums<kFeatures>(sums_tile, kFeatures, product.rows, first_row, first_feature, out, thread,
                        kThreads);
}

}  // namespace headrace::cuda::f32
