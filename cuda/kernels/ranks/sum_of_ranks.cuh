#pragma once

// What all ranks have put, added up.

#include "cuda/kernels/ranks/exchange.cuh"

namespace headrace::cuda {

/// More than this is added up in shares where that moves less: above two ranks. An exchange more
/// costs about as long as half a MiB takes to arrive.
inline constexpr int64_t kFewBytes = int64_t{512} << 10;

/// Whether each rank adds up all of so many bytes. A carrier has brought all parts anyway.
inline bool reads_all(const RankLinks& links, int64_t bytes) {
  return links.count <= 2 || bytes <= kFewBytes || links.carrier != nullptr;
}

/// A vector of elements at `at` of all ranks' pieces, added in the order of the ranks.
template <class T>
__device__ inline Vector<T> sum_of_ranks(const RankLinks& links, uint32_t exchange, int64_t at) {
  constexpr int kSize = Vector<T>::kSize;
  uint4 raw[kMostRanks];
  HEADRACE_UNROLL
  for (int r = 0; r < kMostRanks; ++r) {
    if (r < links.count) {
      raw[r] = load_from_peer(reinterpret_cast<const T*>(piece_of(links, r, exchange)) + at);
    }
  }
  float sum[kSize];
  HEADRACE_UNROLL
  for (int r = 0; r < kMostRanks; ++r) {
    if (r >= links.count) continue;
    Vector<T> values;
    __builtin_memcpy(&values, &raw[r], sizeof values);
    HEADRACE_UNROLL
    for (int i = 0; i < kSize; ++i) {
      sum[i] = r == 0 ? to_float(values.at[i]) : sum[i] + to_float(values.at[i]);
    }
  }
  Vector<T> out;
  HEADRACE_UNROLL
  for (int i = 0; i < kSize; ++i) out.at[i] = from_float<T>(sum[i]);
  return out;
}

/// The same with one rank's vector at a time: fewer registers, for who holds much else.
template <class T>
__device__ inline Vector<T> sum_of_ranks_in_turn(const RankLinks& links, uint32_t exchange,
                                                 int64_t at) {
  constexpr int kSize = Vector<T>::kSize;
  float sum[kSize];
  HEADRACE_NO_UNROLL
  for (int r = 0; r < links.count; ++r) {
    const uint4 raw = load_from_peer(reinterpret_cast<const T*>(piece_of(links, r, exchange)) + at);
    Vector<T> values;
    __builtin_memcpy(&values, &raw, sizeof values);
    HEADRACE_UNROLL
    for (int i = 0; i < kSize; ++i) {
      sum[i] = r == 0 ? to_float(values.at[i]) : sum[i] + to_float(values.at[i]);
    }
  }
  Vector<T> out;
  HEADRACE_UNROLL
  for (int i = 0; i < kSize; ++i) out.at[i] = from_float<T>(sum[i]);
  return out;
}

}  // namespace headrace::cuda
