#pragma once

// AVX2, with or without AVX-VNNI. See int8.h for the vocabulary.

#include <immintrin.h>
#include <stdint.h>

namespace headrace::HEADRACE_ISA {
namespace {

using I32 = __m256i;
using Bytes = __m256i;

HEADRACE_SIMD_INLINE I32 set1_i32(int32_t x) { return _mm256_set1_epi32(x); }
HEADRACE_SIMD_INLINE I32 to_i32(F32 v) { return _mm256_cvtps_epi32(v); }
HEADRACE_SIMD_INLINE F32 to_f32(I32 v) { return _mm256_cvtepi32_ps(v); }
HEADRACE_SIMD_INLINE I32 add_i32(I32 a, I32 b) { return _mm256_add_epi32(a, b); }
template <int kBits>
HEADRACE_SIMD_INLINE I32 shift_left(I32 v) {
  return _mm256_slli_epi32(v, kBits);
}
HEADRACE_SIMD_INLINE void store_i32(void* p, I32 v) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), v);
}
HEADRACE_SIMD_INLINE int32_t reduce_i32(I32 v) {
  __m128i half = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1));
  return _mm_cvtsi128_si32(half);
}
HEADRACE_SIMD_INLINE void store_i8(int8_t* p, I32 v) {
  const __m128i half = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(half, half));
}
HEADRACE_SIMD_INLINE I32 narrow_i8(I32 a, I32 b, I32 c, I32 d) {
  const __m256i all = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
  return _mm256_permutevar8x32_epi32(all, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
HEADRACE_SIMD_INLINE I32 load_u8(const uint8_t* p) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
HEADRACE_SIMD_INLINE I32 multiply_pairs(I32 a, I32 b) { return _mm256_madd_epi16(a, b); }

HEADRACE_SIMD_INLINE void store_i16(int16_t* p, I32 v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
}

using Words = __m256i;
HEADRACE_SIMD_INLINE Words load_i8_pairs(const uint8_t* p) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
HEADRACE_SIMD_INLINE Words load_u8_pairs(const uint8_t* p) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
HEADRACE_SIMD_INLINE Words nibbles(Words w, int shift) {
  return _mm256_and_si256(_mm256_srl_epi16(w, _mm_cvtsi32_si128(shift)), _mm256_set1_epi16(0x0f));
}
HEADRACE_SIMD_INLINE Words broadcast_words(const void* p) {
  int32_t pair;
  __builtin_memcpy(&pair, p, sizeof pair);
  return _mm256_set1_epi32(pair);
}
HEADRACE_SIMD_INLINE I32 dot_words(Words a, Words b, I32 c) {
  return _mm256_add_epi32(c, _mm256_madd_epi16(a, b));
}

HEADRACE_SIMD_INLINE Bytes load_bytes(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
HEADRACE_SIMD_INLINE Bytes low_nibbles(Bytes b) {
  return _mm256_and_si256(b, _mm256_set1_epi8(0x0f));
}
HEADRACE_SIMD_INLINE Bytes high_nibbles(Bytes b) { return low_nibbles(_mm256_srli_epi16(b, 4)); }

constexpr int kQuadBytes = 4;
using Quad = __m256i;

HEADRACE_SIMD_INLINE Quad load_quad(const void* p) {
  int32_t values;
  __builtin_memcpy(&values, p, sizeof values);
  return _mm256_set1_epi32(values);
}

#if defined(__AVXVNNI__)

constexpr int kByteZero = 0;
constexpr int kNarrowQuads = 0;
using Factors = Bytes;

HEADRACE_SIMD_INLINE Factors factors(Bytes b) { return b; }
HEADRACE_SIMD_INLINE I32 dot(Factors w, Quad x, I32 c) { return _mm256_dpbusd_avx_epi32(c, w, x); }

#else

// Pairs of products, at most 2 * 128 * 127, and 8 pairs of nibbles', at most 16 * 15 * 127, fit
// int16: nothing saturates.
constexpr int kByteZero = 128;
constexpr int kNarrowQuads = 8;
struct Factors {
  __m256i sign, magnitude;
};

HEADRACE_SIMD_INLINE Factors factors(Bytes b) {
  const __m256i w = _mm256_xor_si256(b, _mm256_set1_epi8(-128));
  return {w, _mm256_abs_epi8(w)};
}
HEADRACE_SIMD_INLINE I32 dot(const Factors& w, Quad x, I32 c) {
  const __m256i pairs = _mm256_maddubs_epi16(w.magnitude, _mm256_sign_epi8(x, w.sign));
  return _mm256_add_epi32(c, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
HEADRACE_SIMD_INLINE I32 narrow_dot(Bytes nibbles, Quad x, I32 c) {
  c = _mm256_add_epi16(c, _mm256_maddubs_epi16(nibbles, x));
  __asm__("" : "+x"(c));  // or GCC adds products first, and runs out of registers
  return c;
}
HEADRACE_SIMD_INLINE I32 add_narrow(I32 narrow, I32 c) {
  return _mm256_add_epi32(c, _mm256_madd_epi16(narrow, _mm256_set1_epi16(1)));
}

#endif

}  // namespace
}  // namespace headrace::HEADRACE_ISA
