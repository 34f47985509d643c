#pragma once

// Barriers of some of a block's warps.

#include "cuda/device/platform.cuh"

namespace headrace::cuda {

#if defined(HEADRACE_CUDA_EMULATION)

inline void named_barrier(int number, int threads, HEADRACE_SITE) {
  emulation::named_barrier(number, threads, true, site);
}
inline void named_barrier_arrive(int number, int threads, HEADRACE_SITE) {
  emulation::named_barrier(number, threads, false, site);
}

#else

/// Barrier `number` (1 to 15; 0 is __syncthreads()) for `threads` threads, whole warps.
__device__ inline void named_barrier(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
/// The same without waiting.
__device__ inline void named_barrier_arrive(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

#endif

}  // namespace headrace::cuda
