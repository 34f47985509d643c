#pragma once

// The order "larger value, then lower token id" as integers, and sorting by it. Amounts are
// integers too, so that their sums are exact and don't hang on the order in which threads add.

#include "cuda/device/platform.cuh"

namespace headrace::cuda {

/// A token's place in the order: the first has the largest code. 0 stands for no token.
using OrderCode = unsigned long long;

inline constexpr int kTokenBits = 24;
inline constexpr OrderCode kTokenMask = (OrderCode{1} << kTokenBits) - 1;

/// REQUIRES: value not NaN, 0 <= token < 2^24 - 1. Zeros are equal whatever their sign.
__host__ __device__ inline OrderCode order_code(float value, int32_t token) {
  const float positive_zero = value == 0.0f ? 0.0f : value;
  uint32_t bits;
  __builtin_memcpy(&bits, &positive_zero, sizeof bits);
  const uint32_t key = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return OrderCode{key} << kTokenBits | (kTokenMask - static_cast<OrderCode>(token));
}

__host__ __device__ inline int32_t token_of(OrderCode code) {
  return static_cast<int32_t>(kTokenMask - (code & kTokenMask));
}

__host__ __device__ inline float value_of(OrderCode code) {
  const auto key = static_cast<uint32_t>(code >> kTokenBits);
  const uint32_t bits = (key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key;
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

using Amount = unsigned long long;

/// *high * 2^32 + *low += amount, by any number of threads. Shared memory has no 64-bit addition.
__device__ inline void add_amount(uint32_t* low, uint32_t* high, Amount amount) {
  const auto part = static_cast<uint32_t>(amount);
  const uint32_t old = atomicAdd(low, part);
  const uint32_t rest = static_cast<uint32_t>(amount >> 32) + (old + part < old ? 1u : 0u);
  if (rest != 0) atomicAdd(high, rest);
}

/// sort_codes() for up to kThreads codes, by counting those ahead of each; `size` >= count is a
/// power of two from kThreads / 32 to kThreads.
template <int kThreads>
__device__ void rank_codes(OrderCode* codes, uint32_t count, uint32_t size) {
  const uint32_t threads_each = kThreads / size;
  const uint32_t own = static_cast<uint32_t>(threadIdx.x) / threads_each;
  const OrderCode code = own < count ? codes[own] : 0;
  uint32_t place = 0;
  for (uint32_t i = static_cast<uint32_t>(threadIdx.x) % threads_each; i < count;
       i += threads_each) {
    place += codes[i] > code ? 1u : 0u;
  }
  for (uint32_t step = threads_each / 2; step > 0; step /= 2) {
    place += __shfl_xor_sync(kAllLanes, place, static_cast<int>(step));
  }
  __syncthreads();
  if (own < count) codes[place] = code;
  __syncthreads();
}

/// Sorts codes[0, count) in shared memory, the largest first, by a block of kThreads threads. They
/// differ. There is room up to the next power of two, and for 64 at least; what is behind `count`
/// may be overwritten.
template <int kThreads>
__device__ void sort_codes(OrderCode* codes, uint32_t count) {
  const auto thread = static_cast<uint32_t>(threadIdx.x);
  uint32_t size = 2 * kWarp;
  while (size < count) size *= 2;
  __syncthreads();
  if (size <= kThreads) return rank_codes<kThreads>(codes, count, size);
  for (uint32_t i = count + thread; i < size; i += kThreads) codes[i] = 0;
  __syncthreads();
  for (uint32_t run = 2; run <= size; run *= 2) {
    for (uint32_t step = run / 2; step > 0; step /= 2) {
      for (uint32_t pair = thread; pair < size / 2; pair += kThreads) {
        const uint32_t i = 2 * pair - (pair & (step - 1)), j = i + step;
        const OrderCode a = codes[i], b = codes[j];
        if ((a < b) == ((i & run) == 0)) {
          codes[i] = b;
          codes[j] = a;
        }
      }
      // A warp's 32 pairs at steps up to 32 are 64 neighbours, each time the same.
      const uint32_t next = step > 1 ? step / 2 : run;
      if (step <= kWarp && next <= kWarp) {
        __syncwarp();
      } else {
        __syncthreads();
      }
    }
  }
  __syncthreads();
}

}  // namespace headrace::cuda
