#pragma once

// Numbers to codes of 8 bits, the same on host and device.

#include "cuda/device/numbers.cuh"

namespace headrace::cuda {

/// The e4m3 nearest to a number, ties to even; 448 for larger ones. Not for NaN.
__host__ __device__ inline uint8_t e4m3_of(float value) {
  const uint32_t bits = bits_of_float(value), sign = bits >> 24 & 0x80u;
  const float size = least(float_of_bits(bits & 0x7fffffffu), 448.0f);
  if (size < 0x1p-6f) {  // steps of 2^-9, which the lowest bit of the sum is
    return static_cast<uint8_t>(sign | (bits_of_float(size + 0x1p14f) - bits_of_float(0x1p14f)));
  }
  const uint32_t own = bits_of_float(size), rounded = own + 0x7ffffu + (own >> 20 & 1u);
  return static_cast<uint8_t>(sign | ((rounded >> 20) - (120u << 3)));
}

/// The int8 nearest to a number of at most 127 in size, ties to even.
__host__ __device__ inline uint8_t int8_of(float value) {
  // The lowest bit of the sum is 1.
  return static_cast<uint8_t>(bits_of_float(value + 0x1.8p23f));
}

}  // namespace headrace::cuda
