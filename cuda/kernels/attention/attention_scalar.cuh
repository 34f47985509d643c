#pragma once

// Attention of one row at a time in float32, without tensor cores.

#include "cuda/device/reduce.cuh"
#include "cuda/kernels/attention/attention_kernels.cuh"

namespace headrace::cuda {

inline constexpr int kScalarThreads = 128;
inline constexpr int kScalarMaxHeadDim = 640;
inline constexpr int kScalarColumns = kScalarMaxHeadDim / kScalarThreads;  ///< that a thread sums

/// A row's softmax (scores in units of log2) and the thread's columns of its sums.
struct RowSums {
  float max = kNoScore, total = 0.0f;
  float at[kScalarColumns] = {};
};

/// Adds the keys of a range to one row's sums, by a block of kScalarThreads: threads score a key
/// each, then sum a column each. Tiles of kTileKeys are anchored at key 0. `key_at`, `value_at`:
/// element 0 of a key's head; `query`, `scores` [kTileKeys] and `scratch` [a warp each] in shared
/// memory. `cap`: of scores, 0: none.
template <class KeyAt, class ValueAt>
__device__ void attend_keys(const float* query, int32_t d, float scale, const SoftCap& cap,
                            KeyRange keys, const KeyAt& key_at, const ValueAt& value_at,
                            RowSums& sums, float* scores, float* scratch) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int32_t tile = keys.first / kTileKeys * kTileKeys; tile < keys.end; tile += kTileKeys) {
    float score = kNoScore;
    const int32_t position = tile + thread;
    if (thread < kTileKeys && position >= keys.first && position < keys.end) {
      const auto key = key_at(position);
      float dot = 0.0f;
      for (int32_t j = 0; j < d; ++j) dot = fmaf(query[j], to_float(key[j]), dot);
      score = dot * scale;
      if (cap.is_on()) score = cap_score(score, cap);
    }
    const float max = greatest(sums.max, block_reduce(score, Largest{}, scratch));
    const float weight = weight_of(score, 1.0f, base_of(max));
    const float keep = factor_of(sums.max, base_of(max));
    if (thread < kTileKeys) scores[thread] = weight;
    sums.max = max;
    sums.total = sums.total * keep + block_reduce(weight, Sum{}, scratch);
    for (int c = 0; c < kScalarColumns; ++c) {
      const int32_t j = thread + c * kScalarThreads;
      float sum = sums.at[c] * keep;
      for (int32_t i = 0; j < d && i < kTileKeys; ++i) {
        if (tile + i < keys.first || tile + i >= keys.end) continue;
        const auto value = value_at(tile + i);
        sum = fmaf(scores[i], to_float(value[j]), sum);
      }
      sums.at[c] = sum;
    }
    __syncthreads();
  }
}

}  // namespace headrace::cuda
