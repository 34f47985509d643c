#pragma once

// Loops over rows of any length.

#include "backend/cpu/simd/simd.h"

namespace headrace::HEADRACE_ISA {
namespace {

HEADRACE_SIMD_INLINE F32 load_up_to(const float* p, int count) {
  return count == kLanes ? load(p) : load_part(p, count);
}

HEADRACE_SIMD_INLINE void store_up_to(float* p, F32 v, int count) {
  if (count == kLanes) {
    store(p, v);
  } else {
    store_part(p, v, count);
  }
}

/// Calls body(i, count) for the vectors of n numbers; the last one may have fewer lanes.
template <class Body>
HEADRACE_SIMD_INLINE void for_vectors(int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, kLanes);
  if (i < n) body(i, static_cast<int>(n - i));
}

/// The sum of `accumulate(i, count, sum)` over all i. Four sums, each a vector, added as a tree:
/// the order depends on n alone.
template <class Accumulate>
HEADRACE_SIMD_INLINE float sum_of(int64_t n, const Accumulate& accumulate) {
  F32 sums[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int s = 0; s < 4; ++s) sums[s] = accumulate(i + s * kLanes, kLanes, sums[s]);
  }
  for (int s = 0; i < n; i += kLanes, ++s) {
    sums[s] = accumulate(i, static_cast<int>(n - i < kLanes ? n - i : kLanes), sums[s]);
  }
  return reduce_add(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

}  // namespace
}  // namespace headrace::HEADRACE_ISA
