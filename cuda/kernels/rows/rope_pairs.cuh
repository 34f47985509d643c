#pragma once

// Pairs that RoPE turns, and the norm ahead of it, element by element.

#include "cuda/device/reduce.cuh"
#include "cuda/device/rope.cuh"
#include "cuda/kernels/launch.cuh"

namespace headrace::cuda {

/// Elements that pair `p` of a head is: rotated pairs first, then the rest side by side.
struct PairPlace {
  int32_t first, second;
};

__device__ inline PairPlace pair_place(int32_t rotary_dim, bool interleaved, int32_t p) {
  const int32_t pairs = rotary_dim / 2;
  if (p < pairs && !interleaved) return {p, p + pairs};
  return {2 * p, 2 * p + 1};
}

/// 1 / the root of the mean square of x [count]. By the whole block; `scratch`: a float for each
/// warp, in shared memory.
template <class T>
__device__ float inverse_rms(const T* x, int32_t count, float eps, float* scratch) {
  const auto threads = static_cast<int32_t>(blockDim.x);
  float squares = 0.0f;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < count; i += threads) {
    squares = fmaf(to_float(x[i]), to_float(x[i]), squares);
  }
  squares = block_reduce(squares, Sum{}, scratch);
  return 1.0f / sqrtf(squares / static_cast<float>(count) + eps);
}

}  // namespace headrace::cuda
