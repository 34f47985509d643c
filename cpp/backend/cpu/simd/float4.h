#pragma once

// MXFP4 in vectors, in the manner of simd.h. Eight codes e2m1 of a column are in each lane.
//
//   Float4Codes
//   load_codes(p)                4 * kLanes bytes
//   put_code(p, lane, k, code)   k in 0..7: code k of a lane goes among bytes that were 0 at first
//   decode<k>(codes)             code k of each lane as F32
//   load_e8m0(p)                 kLanes scales 2^(b - 127), b in 0..254
// With HEADRACE_HAS_BF16_DOT:
//   decode_pairs<i>(codes)       codes 2 i and 2 i + 1 of each lane as bf16

#include "backend/cpu/simd/simd.h"

namespace headrace::HEADRACE_ISA {
namespace {

#if defined(__AVX2__) && !defined(__AVX512F__)

// A byte has a code of two pairs. A column's pair is a byte each for code 2 i and 2 i + 1; pairs
// whose bytes lie 8 apart leave the shuffles in different halves.

using Float4Codes = __m256i;

HEADRACE_SIMD_INLINE Float4Codes load_codes(const char* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
HEADRACE_SIMD_INLINE void put_code(uint8_t* p, int lane, int k, uint8_t code) {
  const int pair = k / 2;
  const int byte = lane / 4 * 16 + pair % 2 * 8 + lane % 4 * 2 + k % 2;
  p[byte] = static_cast<uint8_t>(p[byte] | code << pair / 2 * 4);
}
template <int k>
HEADRACE_SIMD_INLINE F32 decode(Float4Codes codes) {
  constexpr int kPair = k / 2;
  const __m256i nibbles =
      _mm256_and_si256(kPair < 2 ? codes : _mm256_srli_epi16(codes, 4), _mm256_set1_epi8(0x0f));
  const __m256i low_bytes = _mm256_broadcastsi128_si256(_mm_setr_epi8(
      0, 0, -0x80, -0x40, 0, 0x40, -0x80, -0x40, 0, 0, -0x80, -0x40, 0, 0x40, -0x80, -0x40));
  const __m256i high_bytes =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40, -0x80,
                                                -0x41, -0x41, -0x41, -0x40, -0x40, -0x40, -0x40));
  const __m256i low = _mm256_shuffle_epi8(low_bytes, nibbles);
  const __m256i high = _mm256_shuffle_epi8(high_bytes, nibbles);
  const __m256i pairs =
      kPair % 2 == 0 ? _mm256_unpacklo_epi8(low, high) : _mm256_unpackhi_epi8(low, high);
  return _mm256_castsi256_ps(k % 2 == 0 ? _mm256_slli_epi32(pairs, 16)
                                        : _mm256_and_si256(pairs, _mm256_set1_epi32(-0x10000)));
}

#else

// A lane's halves have the even codes and the odd ones: a shift brings a pair to where words begin.

HEADRACE_SIMD_INLINE constexpr int code_bit(int k) { return k % 2 * 16 + k / 2 * 4; }
HEADRACE_SIMD_INLINE void put_code(uint8_t* p, int lane, int k, uint8_t code) {
  uint8_t& byte = p[lane * 4 + code_bit(k) / 8];
  byte = static_cast<uint8_t>(byte | code << code_bit(k) % 8);
}

#if defined(__AVX512F__)

using Float4Codes = __m512i;

HEADRACE_SIMD_INLINE Float4Codes load_codes(const char* p) { return _mm512_loadu_si512(p); }
template <int k>
HEADRACE_SIMD_INLINE F32 decode(Float4Codes codes) {
  const __m512 values = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f,
                                       -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
  return _mm512_permutexvar_ps(_mm512_srli_epi32(codes, code_bit(k)), values);
}

#if defined(HEADRACE_HAS_BF16_DOT)
template <int i>
HEADRACE_SIMD_INLINE Bf16Pairs decode_pairs(Float4Codes codes) {
  // Five bits choose: the fifth is another code's.
  const __m512i values = _mm512_broadcast_i64x4(
      _mm256_setr_epi16(0, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0, -0x8000, -0x4100,
                        -0x4080, -0x4040, -0x4000, -0x3fc0, -0x3f80, -0x3f40));
  return reinterpret_cast<Bf16Pairs>(
      _mm512_permutexvar_epi16(_mm512_srli_epi32(codes, i * 4), values));
}
#endif

#else

using Float4Codes = __m128i;

HEADRACE_SIMD_INLINE Float4Codes load_codes(const char* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
/// Exponent and mantissa go where a float32 has them, biased so that 2..7 are right; for 0 and 1
/// half a unit too much is there, as of numbers whose leading bit isn't 1.
template <int k>
HEADRACE_SIMD_INLINE F32 decode(Float4Codes codes) {
  const __m128i code = _mm_srli_epi32(codes, code_bit(k));
  const __m128i size = _mm_and_si128(code, _mm_set1_epi32(7));
  const __m128 biased =
      _mm_castsi128_ps(_mm_add_epi32(_mm_slli_epi32(size, 22), _mm_set1_epi32(0x3f000000)));
  const __m128 is_small = _mm_castsi128_ps(_mm_cmplt_epi32(size, _mm_set1_epi32(2)));
  const __m128 value = add(biased, _mm_and_ps(is_small, sub(biased, set1(1.0f))));
  const __m128i sign = _mm_slli_epi32(_mm_and_si128(code, _mm_set1_epi32(8)), 28);
  return _mm_or_ps(value, _mm_castsi128_ps(sign));
}

#endif
#endif

/// 2^-127 is below what an exponent alone says.
HEADRACE_SIMD_INLINE F32 load_e8m0(const char* p) {
#if defined(__AVX512F__)
  const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm512_castsi512_ps(
      _mm512_max_epu32(_mm512_slli_epi32(bytes, 23), _mm512_set1_epi32(0x400000)));
#elif defined(__AVX2__)
  const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(
      _mm256_max_epi32(_mm256_slli_epi32(bytes, 23), _mm256_set1_epi32(0x400000)));
#else
  int32_t four;
  __builtin_memcpy(&four, p, sizeof four);
  const __m128i none = _mm_setzero_si128();
  const __m128i bytes = _mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(four), none), none);
  const __m128i least = _mm_and_si128(_mm_cmpeq_epi32(bytes, none), _mm_set1_epi32(0x400000));
  return _mm_castsi128_ps(_mm_or_si128(_mm_slli_epi32(bytes, 23), least));
#endif
}

}  // namespace
}  // namespace headrace::HEADRACE_ISA
