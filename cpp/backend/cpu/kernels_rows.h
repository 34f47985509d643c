#pragma once

// Row-wise kernels of one ISA. Only types from C headers here, see kernels_linear.h.

#include <stdint.h>

namespace headrace {

struct RowKernels {
  /// out[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i]. out may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* out);
  /// residual += delta; out = rms_norm(residual). out may be delta.
  void (*add_rms_norm)(float* residual, const float* delta, const float* weight, float eps,
                       int64_t n, float* out);
  /// out[i] = silu(gate[i]) * up[i].
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);
  /// out[i] += x[i].
  void (*add)(const float* x, int64_t n, float* out);
  /// sigmoid(sum of x[i] * gate[i]).
  float (*gate)(const float* x, const float* gate, int64_t n);
  /// out[i] += factor * x[i].
  void (*add_scaled)(const float* x, float factor, int64_t n, float* out);
  /// Widens n numbers.
  void (*from_bf16)(const uint16_t* in, int64_t n, float* out);
  void (*from_f16)(const uint16_t* in, int64_t n, float* out);
};

}  // namespace headrace
