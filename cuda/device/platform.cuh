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
#if defined(HEADRACE_CUDA_DEBUG_BARRIERS)
#include <cstdio>
#endif

/// Code for sm_90a alone has a body: there, and in the emulation.
#if defined(HEADRACE_CUDA_EMULATION) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HEADRACE_HOPPER 1
#endif

#if defined(HEADRACE_CUDA_EMULATION)
#define HEADRACE_UNROLL
#define HEADRACE_UNROLL_BY_2
#define HEADRACE_UNROLL_BY_8
#define HEADRACE_NO_UNROLL
#else
#define HEADRACE_UNROLL _Pragma("unroll")
#define HEADRACE_UNROLL_BY_2 _Pragma("unroll 2")
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

/// Shared memory by addresses of 32 bits, which take half the registers and sums that pointers do:
/// where shared_memory() begins, and what lies at an address.
__device__ inline uint32_t shared_begin() {
#if defined(__CUDA_ARCH__)
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared_memory()));
#else
  return 0;
#endif
}
__device__ inline char* shared_at(uint32_t address) {
#if defined(__CUDA_ARCH__)
  return static_cast<char*>(__cvta_shared_to_generic(address));
#else
  return shared_memory() + address;
#endif
}

/// The compiler doesn't compute `value` again where it is used, nor sums with it ahead of time.
template <class T>
__device__ inline void keep_in_register(T& value) {
  static_assert(sizeof value == 4);
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+r"(value));
#else
  static_cast<void>(value);
#endif
}

#if !defined(HEADRACE_CUDA_EMULATION)
/// For waits that end when they take long.
__device__ inline uint64_t nanoseconds() {
  uint64_t time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}
#endif

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
