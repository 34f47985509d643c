#pragma once

// Products of codes of 8 bits, as tensor cores make them (cuda/device/mma8.cuh).

#include <cstdint>

namespace headrace::emulation {

/// What a code of FP8 e4m3 stands for: NaN for 0x7f and 0xff.
double float8_number(uint8_t code);

/// Exact: numbers of e4m3 and int8 leave their sums room in doubles.
void multiply_16x8x32(const double (&a)[16][32], const double (&b)[32][8], double (&sums)[16][8]);

}  // namespace headrace::emulation
