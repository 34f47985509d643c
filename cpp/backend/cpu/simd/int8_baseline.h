#pragma once

// SSE2. See int8.h for the vocabulary.

#include <emmintrin.h>
#include <stdint.h>

namespace headrace::HEADRACE_ISA {
namespace {

using I32 = __m128i;
using Bytes = __m128i;

HEADRACE_SIMD_INLINE I32 set1_i32(int32_t x) { return _mm_set1_epi32(x); }
HEADRACE_SIMD_INLINE I32 to_i32(F32 v) { return _mm_cvtps_epi32(v); }
HEADRACE_SIMD_INLINE F32 to_f32(I32 v) { return _mm_cvtepi32_ps(v); }
HEADRACE_SIMD_INLINE I32 add_i32(I32 a, I32 b) { return _mm_add_epi32(a, b); }
template <int kBits>
HEADRACE_SIMD_INLINE I32 shift_left(I32 v) {
  return _mm_slli_epi32(v, kBits);
}
HEADRACE_SIMD_INLINE void store_i32(void* p, I32 v) {
  _mm_storeu_si128(static_cast<__m128i*>(p), v);
}
HEADRACE_SIMD_INLINE int32_t reduce_i32(I32 v) {
  v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0x4e));
  v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0xb1));
  return _mm_cvtsi128_si32(v);
}
HEADRACE_SIMD_INLINE void store_i8(int8_t* p, I32 v) {
  const __m128i half = _mm_packs_epi32(v, v);
  const int32_t bytes = _mm_cvtsi128_si32(_mm_packs_epi16(half, half));
  __builtin_memcpy(p, &bytes, sizeof bytes);
}
HEADRACE_SIMD_INLINE I32 narrow_i8(I32 a, I32 b, I32 c, I32 d) {
  return _mm_packs_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, d));
}
HEADRACE_SIMD_INLINE I32 load_u8(const uint8_t* p) {
  int32_t bytes;
  __builtin_memcpy(&bytes, p, sizeof bytes);
  const __m128i half = _mm_unpacklo_epi8(_mm_cvtsi32_si128(bytes), _mm_setzero_si128());
  return _mm_unpacklo_epi16(half, _mm_setzero_si128());
}
HEADRACE_SIMD_INLINE I32 multiply_pairs(I32 a, I32 b) { return _mm_madd_epi16(a, b); }

HEADRACE_SIMD_INLINE void store_i16(int16_t* p, I32 v) {
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi32(v, v));
}

using Words = __m128i;
HEADRACE_SIMD_INLINE Words load_i8_pairs(const uint8_t* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8);
}
HEADRACE_SIMD_INLINE Words load_u8_pairs(const uint8_t* p) {
  return _mm_unpacklo_epi8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)),
                           _mm_setzero_si128());
}
HEADRACE_SIMD_INLINE Words nibbles(Words w, int shift) {
  return _mm_and_si128(_mm_srl_epi16(w, _mm_cvtsi32_si128(shift)), _mm_set1_epi16(0x0f));
}
HEADRACE_SIMD_INLINE Words broadcast_words(const void* p) {
  int32_t pair;
  __builtin_memcpy(&pair, p, sizeof pair);
  return _mm_set1_epi32(pair);
}
HEADRACE_SIMD_INLINE I32 dot_words(Words a, Words b, I32 c) {
  return _mm_add_epi32(c, _mm_madd_epi16(a, b));
}

HEADRACE_SIMD_INLINE Bytes load_bytes(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
HEADRACE_SIMD_INLINE Bytes low_nibbles(Bytes b) { return _mm_and_si128(b, _mm_set1_epi8(0x0f)); }
HEADRACE_SIMD_INLINE Bytes high_nibbles(Bytes b) { return low_nibbles(_mm_srli_epi16(b, 4)); }

constexpr int kQuadBytes = 8;
constexpr int kByteZero = 0;
constexpr int kNarrowQuads = 0;
struct Quad {
  __m128i even, odd;
};
struct Factors {
  __m128i even, odd;
};

HEADRACE_SIMD_INLINE Quad load_quad(const void* p) {
  int32_t pairs[2];
  __builtin_memcpy(pairs, p, sizeof pairs);
  return {_mm_set1_epi32(pairs[0]), _mm_set1_epi32(pairs[1])};
}
HEADRACE_SIMD_INLINE Factors factors(Bytes b) {
  return {_mm_and_si128(b, _mm_set1_epi16(0xff)), _mm_srli_epi16(b, 8)};
}
HEADRACE_SIMD_INLINE I32 dot(const Factors& w, const Quad& x, I32 c) {
  c = _mm_add_epi32(c, _mm_madd_epi16(w.even, x.even));
  return _mm_add_epi32(c, _mm_madd_epi16(w.odd, x.odd));
}

}  // namespace
}  // namespace headrace::HEADRACE_ISA
