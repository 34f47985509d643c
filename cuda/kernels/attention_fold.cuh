#pragma once

// The arithmetic that every attention kernel shares, so that they agree to the bit: the step from
// one tile of keys to the next, and merging the results of two splits.

#include "cuda/device/platform.cuh"

namespace headrace::cuda {

/// No key seen yet.
inline constexpr float kNoScore = -INFINITY;
inline constexpr float kLog2E = 1.44269504088896341f;

/// exp2(score - max), with 0 where nothing has been seen.
__device__ inline float weight_of(float score, float max) {
  return score == kNoScore ? 0.0f : exp2f(score - max);
}

/// One row's (or split's) softmax so far: scores in units of log2, outputs are sums / total.
struct SoftmaxState {
  float max;
  float total;
};

/// Factors for the sums of `a`, so far, and of `b`, the split behind it.
struct Fold {
  SoftmaxState state;
  float keep, add;
};

__device__ inline Fold fold_splits(const SoftmaxState& a, const SoftmaxState& b) {
  if (b.max == kNoScore) return {a, 1.0f, 0.0f};
  if (a.max == kNoScore) return {b, 0.0f, 1.0f};
  const float max = a.max > b.max ? a.max : b.max;
  const float keep = exp2f(a.max - max), add = exp2f(b.max - max);
  return {{max, a.total * keep + b.total * add}, keep, add};
}

/// Of one element.
__device__ inline float fold_sums(const Fold& fold, float a, float b) {
  if (fold.add == 0.0f) return a * fold.keep;
  if (fold.keep == 0.0f) return b * fold.add;
  return a * fold.keep + b * fold.add;
}

}  // namespace headrace::cuda
