#pragma once

// Integer vectors for quantized weights, in the manner of simd.h.
//
//   I32                          kLanes int32
//   set1_i32(x)
//   to_i32(v)                    F32 to the nearest whole number, ties to even
//   to_f32(v)                    exact below 2^24
//   add_i32(a, b) reduce_i32(v) shift_left<bits>(v) store_i32(p, v)
//   store_i8(p, v)               kLanes bytes, saturated
//   narrow_i8(a, b, c, d)        the 4 * kLanes bytes of all in order, saturated
//   load_u8(p)                   kLanes bytes as int32
//   store_i16(p, v)              kLanes int16, saturated
//   multiply_pairs(a, b)         per lane: low halves' product + high halves' product (int16)
//
// Pairs of int16, one pair a lane, for quantized keys and values.
//
//   Words
//   load_i8_pairs(p)             2 * kLanes bytes, signed, widened
//   load_u8_pairs(p)             ... unsigned
//   nibbles(w, shift)            per int16: its four bits from `shift` (0 or 4) on
//   broadcast_words(p)           the pair at p in every lane
//   dot_words(a, b, c)           c + both products of each lane; wraps
//
// Dot products. A lane (a column) has four unsigned bytes of weights, consecutive in k; a quad is
// the four activations that they meet, the same for all lanes.
//
//   kQuadBytes                   of a quad in memory: 4 (int8), or 8 (int16) where bytes can't be
//                                multiplied
//   write_quad(p, values)        from four int8
//   Quad load_quad(p)
//   Bytes load_bytes(p)          4 * kLanes bytes
//   low_nibbles(b) high_nibbles(b)
//   Factors factors(b)           what dot wants of the bytes
//   dot(w, x, c)                 c + the four products of each lane; exact
//   kByteZero                    what dot takes off each byte first: 128, or 0
//   kNarrowQuads                 0, or as many quads as int16 sums of nibbles hold:
//   narrow_dot(nibbles, x, c)    c + two products in each half of a lane
//   add_narrow(narrow, c)        c + both halves of each lane

#include "backend/cpu/simd/simd.h"

#if defined(__AVX512F__)
#include "backend/cpu/simd/int8_avx512.h"
#elif defined(__AVX2__)
#include "backend/cpu/simd/int8_avx2.h"
#else
#include "backend/cpu/simd/int8_baseline.h"
#endif

namespace headrace::HEADRACE_ISA {
namespace {

/// What dot, or narrow_dot, takes off the codes of a format.
HEADRACE_SIMD_INLINE constexpr int32_t dot_zero(int32_t bits) { return bits == 8 ? kByteZero : 0; }

/// Where a dot product multiplies pairs of int16: bytes 0 and 2 of a lane, then 1 and 3.
HEADRACE_SIMD_INLINE void write_quad(void* p, const int8_t* values) {
  if constexpr (kQuadBytes == 4) {
    __builtin_memcpy(p, values, 4);
  } else {
    const int16_t wide[4] = {values[0], values[2], values[1], values[3]};
    __builtin_memcpy(p, wide, 8);
  }
}

}  // namespace
}  // namespace headrace::HEADRACE_ISA
