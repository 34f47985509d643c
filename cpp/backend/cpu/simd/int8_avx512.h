#pragma once

// AVX-512 (F, BW, VL, DQ), with or without VNNI. See int8.h for the vocabulary.

#include <immintrin.h>
#include <stdint.h>

namespace headrace::HEADRACE_ISA {
namespace {

using I32 = __m512i;
using Bytes = __m512i;

HEADRACE_SIMD_INLINE I32 set1_i32(int32_t x) { return _mm512_set1_epi32(x); }
HEADRACE_SIMD_INLINE I32 to_i32(F32 v) { return _mm512_cvtps_epi32(v); }
HEADRACE_SIMD_INLINE F32 to_f32(I32 v) { return _mm512_cvtepi32_ps(v); }
HEADRACE_SIMD_INLINE I32 add_i32(I32 a, I32 b) { return _mm512_add_epi32(a, b); }
template <int kBits>
HEADRACE_SIMD_INLINE I32 shift_left(I32 v) {
  return _mm512_slli_epi32(v, kBits);
}
HEADRACE_SIMD_INLINE void store_i32(void* p, I32 v) { _mm512_storeu_si512(p, v); }
HEADRACE_SIMD_INLINE int32_t reduce_i32(I32 v) { return _mm512_reduce_add_epi32(v); }
HEADRACE_SIMD_INLINE void store_i8(int8_t* p, I32 v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(v));
}
HEADRACE_SIMD_INLINE I32 narrow_i8(I32 a, I32 b, I32 c, I32 d) {
  const __m512i all = _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
  return _mm512_permutexvar_epi32(
      _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), all);
}
HEADRACE_SIMD_INLINE I32 load_u8(const uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
HEADRACE_SIMD_INLINE I32 multiply_pairs(I32 a, I32 b) { return _mm512_madd_epi16(a, b); }

HEADRACE_SIMD_INLINE void store_i16(int16_t* p, I32 v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtsepi32_epi16(v));
}

using Words = __m512i;
HEADRACE_SIMD_INLINE Words load_i8_pairs(const uint8_t* p) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
HEADRACE_SIMD_INLINE Words load_u8_pairs(const uint8_t* p) {
  return _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
HEADRACE_SIMD_INLINE Words nibbles(Words w, int shift) {
  return _mm512_and_si512(_mm512_srl_epi16(w, _mm_cvtsi32_si128(shift)), _mm512_set1_epi16(0x0f));
}
HEADRACE_SIMD_INLINE Words broadcast_words(const void* p) {
  int32_t pair;
  __builtin_memcpy(&pair, p, sizeof pair);
  return _mm512_set1_epi32(pair);
}
HEADRACE_SIMD_INLINE I32 dot_words(Words a, Words b, I32 c) {
#if defined(__AVX512VNNI__)
  __asm__("vpdpwssd %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));  // see dot()
  return c;
#else
  return _mm512_add_epi32(c, _mm512_madd_epi16(a, b));
#endif
}

HEADRACE_SIMD_INLINE Bytes load_bytes(const void* p) { return _mm512_loadu_si512(p); }
HEADRACE_SIMD_INLINE Bytes low_nibbles(Bytes b) {
  return _mm512_and_si512(b, _mm512_set1_epi8(0x0f));
}
HEADRACE_SIMD_INLINE Bytes high_nibbles(Bytes b) { return low_nibbles(_mm512_srli_epi16(b, 4)); }

#if defined(__AVX512VNNI__)

constexpr int kQuadBytes = 4;
constexpr int kByteZero = 0;
constexpr int kNarrowQuads = 0;
using Quad = __m512i;
using Factors = Bytes;

HEADRACE_SIMD_INLINE Quad load_quad(const void* p) {
  int32_t values;
  __builtin_memcpy(&values, p, sizeof values);
  return _mm512_set1_epi32(values);
}
HEADRACE_SIMD_INLINE Factors factors(Bytes b) { return b; }
HEADRACE_SIMD_INLINE I32 dot(Factors w, Quad x, I32 c) {
  // Of the intrinsic GCC 12 makes copies of the sum, which then don't fit the registers.
  __asm__("vpdpbusd %2, %1, %0" : "+v"(c) : "v"(w), "v"(x));
  return c;
}

#else

constexpr int kQuadBytes = 8;
constexpr int kByteZero = 0;
constexpr int kNarrowQuads = 0;
struct Quad {
  __m512i even, odd;
};
struct Factors {
  __m512i even, odd;
};

HEADRACE_SIMD_INLINE Quad load_quad(const void* p) {
  int32_t pairs[2];
  __builtin_memcpy(pairs, p, sizeof pairs);
  return {_mm512_set1_epi32(pairs[0]), _mm512_set1_epi32(pairs[1])};
}
HEADRACE_SIMD_INLINE Factors factors(Bytes b) {
  return {_mm512_and_si512(b, _mm512_set1_epi16(0xff)), _mm512_srli_epi16(b, 8)};
}
HEADRACE_SIMD_INLINE I32 dot(const Factors& w, const Quad& x, I32 c) {
  c = _mm512_add_epi32(c, _mm512_madd_epi16(w.even, x.even));
  return _mm512_add_epi32(c, _mm512_madd_epi16(w.odd, x.odd));
}

#endif

}  // namespace
}  // namespace headrace::HEADRACE_ISA
