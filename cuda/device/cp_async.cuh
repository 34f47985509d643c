#pragma once

// Asynchronous copies from global to shared memory (sm_80), 16 bytes each. A thread sees its own
// once it has waited for their group, the others' behind a barrier after that.

#include "cuda/device/platform.cuh"

namespace headrace::cuda {

__device__ inline uint32_t shared_address(const void* shared) {
#if defined(__CUDA_ARCH__)
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
#else
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(shared));
#endif
}

/// Reads `bytes` <= 16 and fills up with zeros. Both addresses are aligned to 16; the source is
/// read past the L1 cache, into L2 128 bytes at a time.
__device__ inline void copy_async_16(void* shared, const void* global, int bytes = 16) {
#if defined(__CUDA_ARCH__)
  asm volatile(
      "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
      "l"(global), "r"(bytes)
      : "memory");
#elif defined(HEADRACE_CUDA_EMULATION)
  emulation::queue_copy(shared, global, static_cast<size_t>(bytes),
                        static_cast<size_t>(16 - bytes));
#endif
}

__device__ inline void copy_async_commit() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#elif defined(HEADRACE_CUDA_EMULATION)
  emulation::commit_copies();
#endif
}

/// Waits for all of this thread's groups but for the newest `kLeft`.
template <int kLeft>
__device__ inline void copy_async_wait() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#elif defined(HEADRACE_CUDA_EMULATION)
  emulation::wait_copies(kLeft);
#endif
}

}  // namespace headrace::cuda
