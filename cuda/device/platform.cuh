#pragma once

// Where device code gets CUDA's vocabulary from: nvcc's own headers, or, for tests that run kernels
// under a host compiler, the emulation (tests/cuda/emulation). The only include out of device/.

#if defined(HEADRACE_CUDA_EMULATION)
#include "cuda_emulation.h"
#else
#include <cuda_runtime.h>
#endif

#include <cstddef>
#include <cstdint>

/// Code for sm_90a alone has a body: there, and in the emulation.
#if defined(HEADRACE_CUDA_EMULATION) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HEADRACE_HOPPER 1
#endif

#if defined(HEADRACE_CUDA_EMULATION)
#define HEADRACE_UNROLL
#define HEADRACE_UNROLL_BY_8
#define HEADRACE_NO_UNROLL
#else
#define HEADRACE_UNROLL _Pragma("unroll")
#define HEADRACE_UNROLL_BY_8 _Pragma("unroll 8")
#define HEADRACE_NO_UNROLL _Pragma("unroll 1")
#endif

namespace headrace::cuda {

inline constexpr int kWarp = 32;
inline constexpr uint32_t kAllLanes = 0xffffffffu;

/// The launch's dynamic shared memory, aligned to 1024 bytes; one use a kernel.
__device__ inline char* shared_memory() {
#if defined(HEADRACE_CUDA_EMULATION)
  return emulation::dynamic_shared_memory();
#else
  extern __shared__ __align__(1024) char memory[];
  return memory;
#endif
}

__device__ inline int lane_id() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ inline int warp_id() { return static_cast<int>(threadIdx.x) / kWarp; }

template <class T>
__host__ __device__ constexpr T divide_up(T a, T b) {
  return (a + b - 1) / b;
}

template <class T>
__host__ __device__ constexpr T least(T a, T b) {
  return a < b ? a : b;
}

template <class T>
__host__ __device__ constexpr T greatest(T a, T b) {
  return a > b ? a : b;
}

}  // namespace headrace::cuda
