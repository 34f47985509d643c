#pragma once

// Finding places in the order "larger value, then lower token id" without sorting, by a block: a
// radix descent over codes that grow against that order. Amounts are integers, so that their sums
// are exact and don't hang on the order in which threads add.

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

struct FoundPlace {
  OrderCode code;
  Amount reached;  ///< summed amount up to and including it
};

inline constexpr int kDigitBits = 8;
inline constexpr int kBuckets = 1 << kDigitBits;
inline constexpr int kBucketsEach = kBuckets / kWarp;  // of a lane that scans them

struct SelectScratch {
  Amount amounts[kBuckets];
  uint32_t counts[kBuckets];
  Amount before;  ///< of the tokens in front of the chosen bucket
  uint32_t chosen;
  OrderCode code;
};

/// Warp 0 finds the first bucket, from the highest on, at which `before` + amounts reaches the
/// target, or the last that isn't empty.
template <class Reaches>
__device__ inline void choose_bucket(Amount before, const Reaches& reaches,
                                     SelectScratch* scratch) {
  const int first = kBuckets - 1 - lane_id() * kBucketsEach;
  Amount own = 0;
  uint32_t count = 0;
  for (int i = 0; i < kBucketsEach; ++i) {
    own += scratch->amounts[first - i];
    count += scratch->counts[first - i];
  }
  Amount sum = own;  // of this lane's buckets and all higher ones
  for (int step = 1; step < kWarp; step *= 2) {
    const Amount other = __shfl_up_sync(kAllLanes, sum, static_cast<unsigned>(step));
    if (lane_id() >= step) sum += other;
  }
  const uint32_t occupied = __ballot_sync(kAllLanes, count > 0);
  const uint32_t reached = __ballot_sync(kAllLanes, count > 0 && reaches(before + sum));
  const int lane = reached != 0 ? __ffs(static_cast<int>(reached)) - 1
                                : kWarp - 1 - __clz(static_cast<int>(occupied));
  if (lane_id() == lane) {
    Amount at = before + sum - own;
    for (int i = 0; i < kBucketsEach; ++i) {
      if (scratch->counts[first - i] == 0) continue;
      scratch->chosen = static_cast<uint32_t>(first - i);
      scratch->before = at;
      at += scratch->amounts[first - i];
      if (reaches(at)) break;
    }
  }
}

/// The first token in order at which the summed amount reaches `target` (with `beyond`: exceeds
/// it); the last token if none does. Called by a whole block of at least kBuckets threads, with the
/// same arguments. visit(f) calls f(code, amount) for this thread's share of the tokens, of which
/// there is at least one; it is called up to nine times.
template <class Visit>
__device__ FoundPlace find_place(const Visit& visit, Amount target, bool beyond,
                                 SelectScratch* scratch) {
  const auto reaches = [&](Amount sum) { return beyond ? sum > target : sum >= target; };
  const int thread = static_cast<int>(threadIdx.x);
  OrderCode prefix = 0, mask = 0;
  Amount before = 0;
  for (int shift = 32 + kTokenBits - kDigitBits; shift >= 0; shift -= kDigitBits) {
    if (thread < kBuckets) {
      scratch->amounts[thread] = 0;
      scratch->counts[thread] = 0;
    }
    __syncthreads();
    visit([&](OrderCode code, Amount amount) {
      if ((code & mask) != prefix) return;
      const auto bucket = static_cast<uint32_t>(code >> shift) & (kBuckets - 1);
      atomicAdd(&scratch->amounts[bucket], amount);
      atomicAdd(&scratch->counts[bucket], 1u);
    });
    __syncthreads();
    if (warp_id() == 0) choose_bucket(before, reaches, scratch);
    __syncthreads();
    const uint32_t chosen = scratch->chosen;
    before = scratch->before;
    prefix |= OrderCode{chosen} << shift;
    mask |= static_cast<OrderCode>(kBuckets - 1) << shift;
    const bool only_one = scratch->counts[chosen] == 1;
    const Amount amount = scratch->amounts[chosen];
    __syncthreads();
    if (!only_one) continue;
    visit([&](OrderCode code, Amount) {
      if ((code & mask) == prefix) scratch->code = code;
    });
    __syncthreads();
    const FoundPlace found{scratch->code, before + amount};
    __syncthreads();
    return found;
  }
  return {prefix, before};  // not reached: codes differ
}

}  // namespace headrace::cuda
