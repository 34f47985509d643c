#pragma once

// Quotients by one divisor, many at once: a division by itself has branches, so that one waits for
// the other.

#include "cuda/device/numbers.cuh"

namespace headrace::cuda {

class Divisor {
 public:
  __device__ explicit Divisor(float divisor) : divisor_(divisor), reciprocal_(1.0f / divisor) {}

  /// Each value over the divisor, rounded as `/` does, but that -0 may become 0; of -inf -inf.
  /// REQUIRES: none is NaN; the divisor is finite and above 0.
  template <int kCount>
  __device__ void divide(float (&values)[kCount]) const {
    // Without branches.
    int near = is_near(divisor_) & int{(bits_of_float(divisor_) & kMantissa) != kMantissa};
    HEADRACE_UNROLL
    for (int i = 0; i < kCount; ++i) {
      near &= is_near(values[i]) | int{values[i] == 0.0f} | int{values[i] == -INFINITY};
    }
    if (near != 0) {
      HEADRACE_UNROLL
      for (int i = 0; i < kCount; ++i) {
        values[i] = values[i] > -INFINITY ? near_quotient(values[i]) : -INFINITY;
      }
    } else {
      HEADRACE_UNROLL
      for (int i = 0; i < kCount; ++i) values[i] = values[i] / divisor_;
    }
  }

 private:
  static constexpr uint32_t kMantissa = 0x7fffff;

  /// Far from what is infinite or denormal, as are quotients and remainders then.
  __device__ static int is_near(float value) {
    const int above = fabsf(value) >= 0x1p-40f, below = fabsf(value) <= 0x1p40f;
    return above & below;
  }
  /// The remainder is exact and the reciprocal rounded to the nearest, so that the quotient is too
  /// (Markstein), whatever the value: but for a divisor whose mantissa has no 0.
  __device__ float near_quotient(float value) const {
    const float quotient = value * reciprocal_;
    return fmaf(fmaf(-divisor_, quotient, value), reciprocal_, quotient);
  }

  float divisor_, reciprocal_;
};

}  // namespace headrace::cuda
