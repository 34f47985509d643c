#pragma once

// Row-wise kernels of one ISA. Only types from C headers here, see kernels_linear.h.

#include <stdint.h>

#include "backend/contract/activation.h"

namespace headrace {

struct RowKernels {
  /// out[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i]; null: all are 1. out may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* out);
  /// residual += delta; out = rms_norm(residual). out may be delta.
  void (*add_rms_norm)(float* residual, const float* delta, const float* weight, float eps,
                       int64_t n, float* out);
  /// out[i] = (x[i] - mean) / sqrt(variance + eps) * weight[i] + bias[i]; null: no bias. The
  /// variance is summed from what is left of x after the mean. out may be x.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, int64_t n,
                     float* out);
  /// out[i] = what `spec` makes of gate[i] and up[i].
  void (*gate_mul)(const GateSpec& spec, const float* gate, const float* up, int64_t n, float* out);
  /// out[i] += x[i].
  void (*add)(const float* x, int64_t n, float* out);
  /// sigmoid(sum of x[i] * gate[i]).
  float (*gate)(const float* x, const float* gate, int64_t n);
  /// out[i] += factor * x[i].
  void (*add_scaled)(const float* x, float factor, int64_t n, float* out);
  /// out[i] = x[i] * factor. out may be x.
  void (*scale)(const float* x, float factor, int64_t n, float* out);
  /// out[i] *= sigmoid(gate[i]).
  void (*mul_sigmoid)(const float* gate, int64_t n, float* out);
  /// x[i] = cap * tanh(x[i] * factor / cap).
  void (*cap)(float* x, float factor, float cap, int64_t n);
  /// out[i] = norm(x)[i] * weight[i] * f(gate[i]), or norm(x * f(gate))[i] * weight[i] with
  /// gate_first; norm as in rms_norm, f is silu or sigmoid. out may be x.
  void (*gated_norm)(const float* x, const float* gate, const float* weight, float eps,
                     bool silu_gate, bool gate_first, int64_t n, float* out);
  /// out[i] = a[i] * b[i].
  void (*multiply)(const float* a, const float* b, int64_t n, float* out);
  /// Widens n numbers.
  void (*from_bf16)(const uint16_t* in, int64_t n, float* out);
  void (*from_f16)(const uint16_t* in, int64_t n, float* out);
};

}  // namespace headrace
