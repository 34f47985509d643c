#pragma once

// RoPE's angles and rotations. Plain types only: launchers' headers include this file, also where
// there is no CUDA compiler.

#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define HEADRACE_ROPE_HOST_DEVICE __host__ __device__
#else
#define HEADRACE_ROPE_HOST_DEVICE
#endif

namespace headrace::cuda {

/// headrace::RopeSpec for the device.
struct RopeAngles {
  const float* inv_freq = nullptr;  ///< [rotary_dim / 2], device memory
  int32_t rotary_dim = 0;
  float attention_factor = 1.0f;
  int32_t dynamic_original_max = 0;  ///< 0: no scaling by length
  double dynamic_base = 0.0;
  double dynamic_factor = 1.0;
  const float* long_inv_freq = nullptr;  ///< [rotary_dim / 2]; null: the spec has none
};

/// Cosine and sine of pair `i` of a row.
struct RopePair {
  float cosine, sine;
};

HEADRACE_ROPE_HOST_DEVICE inline float rope_frequency(const RopeAngles& a, int32_t i,
                                                      int32_t rope_len) {
  if (a.dynamic_original_max <= 0 || rope_len <= a.dynamic_original_max) return a.inv_freq[i];
  if (a.long_inv_freq != nullptr) return a.long_inv_freq[i];
  const double dim = a.rotary_dim;
  const double stretch =
      a.dynamic_factor * rope_len / a.dynamic_original_max - (a.dynamic_factor - 1.0);
  const double base = a.dynamic_base * pow(stretch, dim / (dim - 2.0));
  return static_cast<float>(pow(base, -2.0 * i / a.rotary_dim));
}

HEADRACE_ROPE_HOST_DEVICE inline RopePair rope_angle(const RopeAngles& a, int32_t i,
                                                     int32_t position, int32_t rope_len) {
  const double angle = static_cast<float>(position) * rope_frequency(a, i, rope_len);
  return {static_cast<float>(cos(angle)) * a.attention_factor,
          static_cast<float>(sin(angle)) * a.attention_factor};
}

/// The two elements of a pair, turned. Products and sums are rounded one by one, as the CPU does.
struct RotatedPair {
  float first, second;
};

HEADRACE_ROPE_HOST_DEVICE inline RotatedPair rope_rotate(float first, float second, RopePair turn) {
  return {first * turn.cosine - second * turn.sine, second * turn.cosine + first * turn.sine};
}

}  // namespace headrace::cuda
