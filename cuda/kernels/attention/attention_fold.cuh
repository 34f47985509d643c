#pragma once

// The arithmetic that every attention kernel shares, so that they agree to the bit.
//
// A score is a chain of sums over the head in groups of 16. Tiles of kTileKeys keys, anchored at
// position 0, follow one another with an online softmax: the largest score so far, in units of
// log2, is a weight's base; what has been summed is multiplied by factor_of() where it grows, which
// is 1 otherwise. A tile's values are added in groups of 16 keys. Lane q of a row's four sums the
// weights of the keys 8j + 2q of a tile, and of 8j + 2q + 1, in order of j, and adds both
// (tile_total). Each split of kSplitKeys begins afresh; splits are folded in index order, the four
// totals apart until the end (row_total). Tiles and splits of which a row sees nothing leave its
// bits alone. A soft cap makes of each score, in units of log2, cap * tanh(score / cap) before all
// that (cap_score). A sink comes in behind the last split (output_factor).

#include "cuda/device/platform.cuh"

namespace headrace::cuda {

/// No key seen yet.
inline constexpr float kNoScore = -INFINITY;
inline constexpr float kLog2E = 1.44269504088896341f;

__device__ inline float exp2_approximate(float x) {
#if defined(__CUDA_ARCH__)
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
#else
  return exp2f(x);
#endif
}

/// A soft cap of scores, with its inverse: kernels divide by nothing.
struct SoftCap {
  float cap = 0.0f;  ///< 0: none
  float inverse = 0.0f;

  __device__ bool is_on() const { return cap > 0.0f; }
};

__device__ inline float cap_score(float score, const SoftCap& soft) {
  return soft.cap * tanhf(score * soft.inverse);
}

/// What weights and factors are taken against: the largest score, or anything where there is none.
__device__ inline float base_of(float max) { return max == kNoScore ? 0.0f : max; }

/// `scale` > 0 brings a score into units of log2.
__device__ inline float weight_of(float score, float scale, float base) {
  return exp2_approximate(fmaf(score, scale, -base));
}

/// For sums that were made with an earlier, or another split's, maximum. 1 where it is the same.
__device__ inline float factor_of(float max, float base) { return exp2_approximate(max - base); }

/// The largest score behind a tile whose largest is `score`, unscaled.
__device__ inline float max_with(float max, float score, float scale) {
  return fmaxf(max, score * scale);
}

/// Adds a split to those before it.
struct Fold {
  float max;
  float keep, add;

  __device__ Fold(float held_max, float added_max) : max(fmaxf(held_max, added_max)) {
    const float base = base_of(max);
    keep = factor_of(held_max, base);
    add = factor_of(added_max, base);
  }
  __device__ float operator()(float held, float added) const {
    return fmaf(added, add, held * keep);
  }
};

__device__ inline float row_total(const float4& lanes) {
  return (lanes.x + lanes.y) + (lanes.z + lanes.w);
}

}  // namespace headrace::cuda
