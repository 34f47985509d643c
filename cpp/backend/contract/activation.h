#pragma once

// Elementwise functions, and what opens the gate of an MLP. Types alone: kernels of every ISA
// include this.

#include <stdint.h>

namespace headrace {

enum class Activation : uint8_t {
  kSilu,       ///< x * sigmoid(x)
  kGeluErf,    ///< x * (1 + erf(x / sqrt(2))) / 2
  kGeluTanh,   ///< x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2
  kQuickGelu,  ///< x * sigmoid(1.702 x)
  kRelu2,      ///< max(x, 0)^2
  kTanh,
};

/// What a gated MLP makes of a gate g and of u, which goes through it: activation(factor * g) * u.
/// With a limit (gpt-oss): c * sigmoid(alpha * c) * (clamp(u, -limit, limit) + 1), where c = min(g,
/// limit).
struct GateSpec {
  /// Not kQuickGelu, kTanh; with a limit or a factor kSilu.
  Activation activation = Activation::kSilu;
  float limit = 0.0f;   ///< 0: none
  float alpha = 1.0f;   ///< with a limit alone
  float factor = 1.0f;  ///< without a limit alone
};

}  // namespace headrace
