#pragma once

// Blocks of one grid that hand results to whichever of them is the last to finish.

#include "cuda/device/platform.cuh"

namespace headrace::cuda {

/// Orders this thread's earlier accesses of global memory, and those that it has synchronized with,
/// before its later ones, as all threads of the device see them.
__device__ inline void device_fence() {
#if defined(__CUDA_ARCH__)
  __threadfence();
#endif
}

/// By all threads of a block that has made `made` of `count` results, and which then see those of
/// all blocks: are these the last? The counter, zero at first, is zero again then. `shared`: a word
/// that nobody uses until the block's next barrier but one.
__device__ inline bool is_last_block(int32_t* counter, int32_t made, int32_t count,
                                     uint32_t* shared) {
  __syncthreads();
  if (threadIdx.x == 0) {
    device_fence();
    const bool last = atomicAdd(counter, made) + made == count;
    if (last) {
      *counter = 0;
      device_fence();
    }
    *shared = last;
  }
  __syncthreads();
  return *shared != 0;
}

/// Past the L1 cache, which doesn't see other blocks' writes.
__device__ inline float4 load_others(const float* from) {
#if defined(__CUDA_ARCH__)
  return __ldcg(reinterpret_cast<const float4*>(from));
#else
  return *reinterpret_cast<const float4*>(from);
#endif
}

template <class T>
__device__ T load_other(const T* from) {
#if defined(__CUDA_ARCH__)
  return __ldcg(from);
#else
  return *from;
#endif
}

}  // namespace headrace::cuda
