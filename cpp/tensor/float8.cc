#include "tensor/float8.h"

#include <array>
#include <cmath>
#include <limits>

namespace headrace {

namespace {

/// One sign bit, four of exponent (bias 7), three of mantissa.
float decode(uint32_t bits) {
  const uint32_t exponent = bits >> 3 & 15u, mantissa = bits & 7u;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  const float size = exponent == 0
                         ? std::ldexp(static_cast<float>(mantissa), -9)
                         : std::ldexp(static_cast<float>(8 + mantissa), int(exponent) - 10);
  return (bits & 0x80u) != 0 ? -size : size;
}

std::array<float, 256> decode_all() {
  std::array<float, 256> out{};
  for (uint32_t bits = 0; bits < out.size(); ++bits) out[bits] = decode(bits);
  return out;
}

}  // namespace

float e4m3_to_f32(uint8_t bits) noexcept {
  static const std::array<float, 256> kValues = decode_all();
  return kValues[bits];
}

}  // namespace headrace
