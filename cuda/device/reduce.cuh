#pragma once

// Reductions by a fixed tree: the same bits every time for the same number of threads.

#include "cuda/device/platform.cuh"

namespace headrace::cuda {

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

struct Largest {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

/// Of the warp's 32 lanes, or of each kLanes, a power of two, side by side; every lane gets it.
template <int kLanes = kWarp, class T, class Combine>
__device__ inline T warp_reduce(T value, const Combine& combine) {
  HEADRACE_UNROLL
  for (int step = kLanes / 2; step > 0; step /= 2) {
    value = combine(value, __shfl_xor_sync(kAllLanes, value, step));
  }
  return value;
}

/// Of all threads of a block of whole warps; every thread gets it. `scratch`: one T for each warp
/// in shared memory, free for another use after the call.
template <class T, class Combine>
__device__ inline T block_reduce(T value, const Combine& combine, T* scratch) {
  value = warp_reduce(value, combine);
  if (lane_id() == 0) scratch[warp_id()] = value;
  __syncthreads();
  value = scratch[0];
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  for (int w = 1; w < warps; ++w) value = combine(value, scratch[w]);
  __syncthreads();
  return value;
}

}  // namespace headrace::cuda
