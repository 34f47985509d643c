#pragma once

// Words that GPUs of one model tell each other, in memory that all of them reach.

#include "cuda/device/platform.cuh"

#if defined(HEADRACE_CUDA_EMULATION)
#include <atomic>
#endif

namespace headrace::cuda {

/// Writes `value` where another GPU reads it, behind all that this grid and earlier ones of its
/// stream have written and made visible (peers_fence()).
__device__ inline void tell_peer(uint32_t* word, uint32_t value) {
#if defined(HEADRACE_CUDA_EMULATION)
  std::atomic_ref(*word).store(value, std::memory_order_release);
#else
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
#endif
}

/// The word, and with it what its writer has written before.
__device__ inline uint32_t hear_peer(uint32_t* word) {
#if defined(HEADRACE_CUDA_EMULATION)
  return std::atomic_ref(*word).load(std::memory_order_acquire);
#else
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
#endif
}

/// Orders this thread's earlier accesses before its later ones as all GPUs see them.
__device__ inline void peers_fence() {
#if defined(HEADRACE_CUDA_EMULATION)
  std::atomic_thread_fence(std::memory_order_seq_cst);
#else
  __threadfence_system();
#endif
}

/// Waits until *word is `target` or later (counters wrap), or *stop isn't zero. False: neither has
/// come within `seconds`, or, in the emulation, as long as that lets it take. With
/// HEADRACE_CUDA_DEBUG_BARRIERS a wait of 20 seconds says so and ends the kernel.
#if defined(HEADRACE_CUDA_EMULATION)
inline bool await_peer(uint32_t* word, uint32_t target, uint32_t* stop, int, HEADRACE_SITE) {
  return emulation::wait_outside(
      [=] { return static_cast<int32_t>(hear_peer(word) - target) >= 0 || hear_peer(stop) != 0; },
      site);
}
#else
__device__ inline bool await_peer(uint32_t* word, uint32_t target, uint32_t* stop, int seconds) {
  constexpr unsigned kLooksAtStop = 256;  // it lies in the host's memory
#if defined(HEADRACE_CUDA_DEBUG_BARRIERS)
  seconds = 20;
#endif
  uint64_t end = 0;
  for (unsigned n = 1; static_cast<int32_t>(hear_peer(word) - target) < 0; ++n) {
    if (n % kLooksAtStop != 0) continue;
    if (hear_peer(stop) != 0) return true;
    const uint64_t now = nanoseconds();
    if (end == 0) end = now + static_cast<uint64_t>(seconds) * 1'000'000'000u;
    if (now <= end) continue;
#if defined(HEADRACE_CUDA_DEBUG_BARRIERS)
    printf("block %u,%u,%u thread %u: another GPU's word %p stays at %u, not %u\n", blockIdx.x,
           blockIdx.y, blockIdx.z, threadIdx.x, static_cast<void*>(word), hear_peer(word), target);
    __trap();
#endif
    return false;
  }
  return true;
}
#endif

/// 16 bytes of another GPU's memory, past the L1 cache.
__device__ inline uint4 load_from_peer(const void* from) {
#if defined(__CUDA_ARCH__)
  return __ldcg(static_cast<const uint4*>(from));
#else
  return *static_cast<const uint4*>(from);
#endif
}

/// One element of it.
template <class T>
__device__ inline T load_one_from_peer(const T* from) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4);
  T out;
  if constexpr (sizeof(T) == 2) {
    const uint16_t raw = *reinterpret_cast<const volatile uint16_t*>(from);
    __builtin_memcpy(&out, &raw, sizeof out);
  } else {
    const uint32_t raw = *reinterpret_cast<const volatile uint32_t*>(from);
    __builtin_memcpy(&out, &raw, sizeof out);
  }
  return out;
}

}  // namespace headrace::cuda
