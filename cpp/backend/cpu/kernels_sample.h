#pragma once

// Sampling kernels of one ISA: single passes over a part of the vocabulary. Only types from C
// headers here, see kernels_linear.h.

#include <stdint.h>

namespace headrace {

struct Candidate {
  float value;   ///< processed logit
  float weight;  ///< exp(value - max)
  int32_t token;
};

struct PreparedLogits {
  float max;      ///< of out
  float raw_max;  ///< of x; +inf if x has a NaN
};

struct SampleKernels {
  /// out = x, but -inf for NaN and for tokens whose bit in `allowed` (null: all) is 0.
  struct PreparedLogits (*prepare)(const float* x, int64_t n, const uint32_t* allowed, float* out);
  /// x /= divisor. Returns the maximum.
  float (*divide)(float* x, int64_t n, float divisor);
  /// -inf if n is 0. REQUIRES: no NaN, here and below.
  float (*maximum)(const float* x, int64_t n);
  /// Sum of exp(x - max); as good as a sum in double of float32 terms. REQUIRES: x <= max.
  double (*exp_sum)(const float* x, int64_t n, float max);
  int64_t (*count_greater)(const float* x, int64_t n, float value);
  /// Index of the first x >= value; n if there is none.
  int64_t (*find_at_least)(const float* x, int64_t n, float value);
  /// Writes the tokens with x > threshold, in order, and returns how many. `first_token`: of x[0].
  int64_t (*collect)(const float* x, int64_t n, float threshold, float max, int32_t first_token,
                     Candidate* out);
};

}  // namespace headrace
