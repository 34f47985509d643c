#pragma once

// The numbers of MXFP4: codes of four bits, and the scale that 32 of them share.

#include <cstdint>

namespace headrace {

/// FP4 e2m1 to float: the lowest four bits of `bits`; 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their
/// negatives.
float e2m1_to_f32(uint8_t bits) noexcept;

/// e8m0, a scale without sign, to float: 2^(bits - 127), exact. NaN for 0xff.
float e8m0_to_f32(uint8_t bits) noexcept;

}  // namespace headrace
