#pragma once

#include <cstdint>

namespace headrace {

/// FP8 e4m3 (the variant "fn": no infinities, largest 448) to float: exact. NaN for 0x7f and 0xff.
float e4m3_to_f32(uint8_t bits) noexcept;

/// The nearest, ties to even; +-448 for what is larger. 0x7f for NaN.
uint8_t f32_to_e4m3(float value) noexcept;

}  // namespace headrace
