#pragma once

// Row-wise kernels of vision towers, of one ISA. Only types from C headers here, see
// kernels_linear.h.

#include <stdint.h>

namespace headrace {

struct VisionRowKernels {
  // x[i] = f(x[i]), see Activation.
  void (*silu)(float* x, int64_t n);
  void (*gelu_erf)(float* x, int64_t n);
  void (*gelu_tanh)(float* x, int64_t n);
  void (*quick_gelu)(float* x, int64_t n);
  void (*relu2)(float* x, int64_t n);
  void (*tanh)(float* x, int64_t n);
  /// Turns every head of a row [heads][2 * pairs] by `table`, `pairs` cosines and then sines.
  /// Products and sums are rounded one by one, as the published implementations do.
  void (*rotate)(float* x, const float* table, int32_t heads, int32_t pairs);
};

}  // namespace headrace
