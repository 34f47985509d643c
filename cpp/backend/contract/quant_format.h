#pragma once

// How quantized weights look. Only types from C headers here: kernels include this file.

#include <stdint.h>

namespace headrace {

/// What activations are where they meet codes.
enum class Activations : uint8_t {
  kInt8Groups,  ///< rounded to int8, with a scale for each row and group of k: W4A8, W8A8
  kWhole,       ///< as they come, in 16 or 32 bits: W4A16, W8A16
  // Rounded like the weights, whose codes are of the same type (rounds_rows()):
  kInt8Rows,      ///< int8; a scale for each row, and for each feature
  kFloat8Rows,    ///< FP8 e4m3, likewise
  kFloat8Groups,  ///< FP8 e4m3; a scale for each row and 128 k, and for each feature and 128 k
};

/// Weights as small unsigned integers. Along k they fall into groups that share a scale:
///   w[n][k] = scale[n][g] * (code[n][k] - zero[n][g]),  g = k / group_size
/// or, where rounds_rows(), as int8 or e4m3, of 8 bits in groups of 128 without zero points, in
/// order, with float32 scales:
///   w[n][k] = scale[n] * code[n][k]    or, kFloat8Groups,    scale[n][k / 128] * code[n][k]
/// Then an activation x of a row becomes the code nearest to x * (most / top), ties to even, where
/// `top` is the largest size in the row (or in its 128 k) and `most` 127 or 448, and means that
/// code times top / most. Below 2^-100 `top` is 0, and so are the codes. A row (or 128 k) with a
/// number that isn't finite has NaN for a scale.
struct QuantFormat {
  int32_t bits = 0;          ///< 8 or 4; 0: not quantized
  int32_t group_size = 0;    ///< 32, 64 or 128
  bool zero_points = false;  ///< false: zero is 128 or 8 everywhere and isn't stored
  bool f16_scales = false;   ///< false: scales are bf16
  bool reordered = false;    ///< groups are of inputs in an order of the weight's own
  Activations activations = Activations::kInt8Groups;
  bool float4 = false;  ///< MXFP4: all the others are those of kFloat4Format
  bool operator==(const QuantFormat&) const = default;
};

/// Weights as FP4 e2m1, of which 32 along k share a scale e8m0; activations aren't rounded to
/// codes:
///   w[n][k] = e2m1(code[n][k]) * 2^(scale[n][k / 32] - 127)
/// They always come as codes, k is a multiple of 32, and no weight is beyond float32.
inline constexpr QuantFormat kFloat4Format{
    .bits = 4, .group_size = 32, .activations = Activations::kWhole, .float4 = true};

/// Both sides of a product are codes of one type.
constexpr bool rounds_rows(const QuantFormat& format) {
  return format.activations >= Activations::kInt8Rows;
}
/// Codes are e4m3.
constexpr bool has_float8(const QuantFormat& format) {
  return format.activations >= Activations::kFloat8Rows;
}
/// The largest number that a code of a format that rounds_rows() has.
constexpr float most_of(const QuantFormat& format) { return has_float8(format) ? 448.0f : 127.0f; }

inline constexpr int32_t kMaxQuantGroup = 128;

/// One group of one output feature.
struct QuantizedGroup {
  uint16_t scale;  ///< bf16 or f16, as the format says; e8m0 of MXFP4
  uint8_t zero;    ///< the code that stands for 0
  uint8_t codes[kMaxQuantGroup];
  float wide_scale = 0.0f;  ///< instead of `scale`, where rounds_rows(); int8 codes are 128 more
};

constexpr int32_t quant_zero(int32_t bits) { return bits == 8 ? 128 : 8; }

}  // namespace headrace
