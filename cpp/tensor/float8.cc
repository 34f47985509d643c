#include "tensor/float8.h"

#include <array>
#include <cmath>
#include <cstring>
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

uint8_t f32_to_e4m3(float value) noexcept {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80u);
  const uint32_t rest = bits & 0x7fffffffu;
  const auto with_sign = [&](uint32_t code) { return static_cast<uint8_t>(sign | code); };
  if (rest > 0x7f800000u) return 0x7f;
  if (rest >= 0x43e00000u) return with_sign(0x7eu);
  if (rest < 0x3c800000u) {
    // Below 2^-6: multiples of 2^-9, which adding 2^14 leaves in the lowest bits.
    float size;
    std::memcpy(&size, &rest, sizeof size);
    size += 0x1p14f;
    uint32_t sum;
    std::memcpy(&sum, &size, sizeof sum);
    return with_sign(sum - 0x46800000u);
  }
  const uint32_t rounded = rest + 0x7ffffu + (rest >> 20 & 1u);
  return with_sign((rounded - 0x3c000000u) >> 20);
}

}  // namespace headrace
