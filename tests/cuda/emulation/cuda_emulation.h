#pragma once

// CUDA's vocabulary for kernels that a host compiler compiles: what our kernels use of it, and
// nothing more. See block_runner.h for how they run.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

#include "block_runner.h"
#include "codes8.h"
#include "hopper.h"

#define __global__
#define __host__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static thread_local

using dim3 = headrace::emulation::Dim3;

// Set for the running thread.
constinit inline thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

// CUDA lets these alias anything.
struct alignas(8) float2 {
  float x, y;
} __attribute__((may_alias));
struct alignas(16) float4 {
  float x, y, z, w;
} __attribute__((may_alias));
struct alignas(8) uint2 {
  uint32_t x, y;
} __attribute__((may_alias));
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
} __attribute__((may_alias));

namespace headrace::emulation {

char* dynamic_shared_memory();

template <class T>
struct ShufflePayload {
  T value;
  unsigned source;
  T result;
};

template <class T>
const char* shuffle(void* const* payloads) {
  for (int lane = 0; lane < 32; ++lane) {
    auto* own = static_cast<ShufflePayload<T>*>(payloads[lane]);
    if (own == nullptr) continue;
    const auto* from = static_cast<const ShufflePayload<T>*>(payloads[own->source]);
    if (from == nullptr) return "a shuffle reads from a lane that takes no part";
    own->result = from->value;
  }
  return nullptr;
}

template <class T>
T shuffle_from(uint32_t lanes, T value, unsigned source, const std::source_location& site) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  ShufflePayload<T> payload{value, source % 32, value};
  warp_collective(lanes, &shuffle<T>, &payload, site);
  return payload.result;
}

struct BallotPayload {
  bool predicate;
  uint32_t result;
};

inline const char* ballot(void* const* payloads) {
  uint32_t votes = 0;
  for (int lane = 0; lane < 32; ++lane) {
    const auto* own = static_cast<const BallotPayload*>(payloads[lane]);
    if (own != nullptr && own->predicate) votes |= 1u << lane;
  }
  for (int lane = 0; lane < 32; ++lane) {
    if (payloads[lane] != nullptr) static_cast<BallotPayload*>(payloads[lane])->result = votes;
  }
  return nullptr;
}

inline const char* only_wait(void* const*) { return nullptr; }

}  // namespace headrace::emulation

#define HEADRACE_SITE const std::source_location& site = std::source_location::current()

inline void __syncthreads(HEADRACE_SITE) { headrace::emulation::block_barrier(site); }

inline void __syncwarp(uint32_t lanes = 0xffffffffu, HEADRACE_SITE) {
  headrace::emulation::warp_collective(lanes, &headrace::emulation::only_wait, nullptr, site);
}

template <class T>
T __shfl_sync(uint32_t lanes, T value, int source, HEADRACE_SITE) {
  return headrace::emulation::shuffle_from(lanes, value, static_cast<unsigned>(source), site);
}

template <class T>
T __shfl_xor_sync(uint32_t lanes, T value, int mask, HEADRACE_SITE) {
  const unsigned source = (threadIdx.x % 32) ^ static_cast<unsigned>(mask);
  return headrace::emulation::shuffle_from(lanes, value, source, site);
}

/// Lanes below `delta` keep their value.
template <class T>
T __shfl_up_sync(uint32_t lanes, T value, unsigned delta, HEADRACE_SITE) {
  const unsigned lane = threadIdx.x % 32;
  return headrace::emulation::shuffle_from(lanes, value, lane < delta ? lane : lane - delta, site);
}

inline uint32_t __ballot_sync(uint32_t lanes, bool predicate, HEADRACE_SITE) {
  headrace::emulation::BallotPayload payload{predicate, 0};
  headrace::emulation::warp_collective(lanes, &headrace::emulation::ballot, &payload, site);
  return payload.result;
}

inline bool __any_sync(uint32_t lanes, bool predicate, HEADRACE_SITE) {
  return __ballot_sync(lanes, predicate, site) != 0;
}

// Threads of a block never run at the same time.
template <class T>
T atomicAdd(T* to, std::type_identity_t<T> value) {
  const T old = *to;
  *to = old + value;
  return old;
}
template <class T>
T atomicMin(T* to, std::type_identity_t<T> value) {
  const T old = *to;
  *to = std::min(old, value);
  return old;
}
template <class T>
T atomicMax(T* to, std::type_identity_t<T> value) {
  const T old = *to;
  *to = std::max(old, value);
  return old;
}

inline int __popc(uint32_t x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<uint32_t>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<uint32_t>(x)) + 1; }
