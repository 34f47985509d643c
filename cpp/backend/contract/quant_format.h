#pragma once

// How quantized weights look. Only types from C headers here: kernels include this file.

#include <stdint.h>

namespace headrace {

/// What activations are where they meet integer codes.
enum class Activations : uint8_t {
  kInt8Groups,  ///< rounded to int8, with a scale for each row and group of k: W4A8, W8A8
  kWhole,       ///< as they come, in 16 or 32 bits: W4A16, W8A16
};

/// Weights as small unsigned integers. Along k they fall into groups that share a scale:
///   w[n][k] = scale[n][g] * (code[n][k] - zero[n][g]),  g = k / group_size
struct QuantFormat {
  int32_t bits = 0;          ///< 8 or 4; 0: not quantized
  int32_t group_size = 0;    ///< 32, 64 or 128
  bool zero_points = false;  ///< false: zero is 128 or 8 everywhere and isn't stored
  bool f16_scales = false;   ///< false: scales are bf16
  bool reordered = false;    ///< groups are of inputs in an order of the weight's own
  Activations activations = Activations::kInt8Groups;
  bool operator==(const QuantFormat&) const = default;
};

inline constexpr int32_t kMaxQuantGroup = 128;

/// One group of one output feature.
struct QuantizedGroup {
  uint16_t scale;  ///< bf16 or f16, as the format says
  uint8_t zero;    ///< the code that stands for 0
  uint8_t codes[kMaxQuantGroup];
};

constexpr int32_t quant_zero(int32_t bits) { return bits == 8 ? 128 : 8; }

}  // namespace headrace
