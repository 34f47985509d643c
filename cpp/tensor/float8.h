#pragma once

#include <cstdint>

namespace headrace {

/// FP8 e4m3 (the variant "fn": no infinities, largest 448) to float: exact. NaN for 0x7f and 0xff.
float e4m3_to_f32(uint8_t bits) noexcept;

}  // namespace headrace
