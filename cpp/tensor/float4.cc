#include "tensor/float4.h"

#include <bit>
#include <limits>

namespace headrace {

float e2m1_to_f32(uint8_t bits) noexcept {
  static constexpr float kValues[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                        -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  return kValues[bits & 15u];
}

float e8m0_to_f32(uint8_t bits) noexcept {
  if (bits == 0xff) return std::numeric_limits<float>::quiet_NaN();
  if (bits == 0) return 0x1p-127f;  // below what an exponent alone says
  return std::bit_cast<float>(uint32_t{bits} << 23);
}

}  // namespace headrace
