#pragma once

// AVX2 with FMA and F16C: 8 floats. See simd.h for the vocabulary.

#include <immintrin.h>
#include <stdint.h>

namespace headrace::HEADRACE_ISA {
namespace {

using F32 = __m256;
constexpr int kLanes = 8;

HEADRACE_SIMD_INLINE F32 zero() { return _mm256_setzero_ps(); }
HEADRACE_SIMD_INLINE F32 set1(float x) { return _mm256_set1_ps(x); }
HEADRACE_SIMD_INLINE F32 load(const float* p) { return _mm256_loadu_ps(p); }
HEADRACE_SIMD_INLINE void store(float* p, F32 v) { _mm256_storeu_ps(p, v); }
HEADRACE_SIMD_INLINE __m256i first_lanes(int n) {
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), index);
}
HEADRACE_SIMD_INLINE F32 load_part(const float* p, int n) {
  return _mm256_maskload_ps(p, first_lanes(n));
}
HEADRACE_SIMD_INLINE void store_part(float* p, F32 v, int n) {
  _mm256_maskstore_ps(p, first_lanes(n), v);
}
HEADRACE_SIMD_INLINE F32 add(F32 a, F32 b) { return _mm256_add_ps(a, b); }
HEADRACE_SIMD_INLINE F32 sub(F32 a, F32 b) { return _mm256_sub_ps(a, b); }
HEADRACE_SIMD_INLINE F32 mul(F32 a, F32 b) { return _mm256_mul_ps(a, b); }
HEADRACE_SIMD_INLINE F32 div(F32 a, F32 b) { return _mm256_div_ps(a, b); }
HEADRACE_SIMD_INLINE F32 max(F32 a, F32 b) { return _mm256_max_ps(a, b); }
HEADRACE_SIMD_INLINE F32 min(F32 a, F32 b) { return _mm256_min_ps(a, b); }
HEADRACE_SIMD_INLINE F32 sqrt(F32 v) { return _mm256_sqrt_ps(v); }
HEADRACE_SIMD_INLINE F32 fma(F32 a, F32 b, F32 c) { return _mm256_fmadd_ps(a, b, c); }

HEADRACE_SIMD_INLINE float reduce_add(F32 v) {
  const __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}
HEADRACE_SIMD_INLINE float reduce_max(F32 v) {
  const __m128 half = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}

HEADRACE_SIMD_INLINE void transpose(F32 (&rows)[kLanes]) {
  F32 quads[kLanes];  // of 4 x 4 blocks: row i of the upper half's two, then of the lower half's
#pragma GCC unroll 2
  for (int i = 0; i < kLanes; i += 4) {
    const F32 a = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
    const F32 b = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    const F32 c = _mm256_unpacklo_ps(rows[i + 2], rows[i + 3]);
    const F32 d = _mm256_unpackhi_ps(rows[i + 2], rows[i + 3]);
    quads[i] = _mm256_shuffle_ps(a, c, 0x44);
    quads[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
    quads[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
    quads[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    rows[i] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20);
    rows[i + 4] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31);
  }
}

HEADRACE_SIMD_INLINE uint32_t greater_mask(F32 a, F32 b) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)));
}
/// Per lane: a > b ? yes : no.
HEADRACE_SIMD_INLINE F32 select_greater(F32 a, F32 b, F32 yes, F32 no) {
  return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_GT_OQ));
}
HEADRACE_SIMD_INLINE F32 round(F32 v) {
  return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/// v * 2^n for whole n in [-252, 254].
HEADRACE_SIMD_INLINE F32 scale_by_power_of_two(F32 v, F32 n) {
  const __m256i whole = _mm256_cvtps_epi32(n);
  const __m256i low = _mm256_srai_epi32(whole, 1);
  const __m256i high = _mm256_sub_epi32(whole, low);
  const __m256i bias = _mm256_set1_epi32(127);
  const F32 a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(low, bias), 23));
  const F32 b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(high, bias), 23));
  return mul(mul(v, a), b);
}

HEADRACE_SIMD_INLINE F32 load_bf16(const uint16_t* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
HEADRACE_SIMD_INLINE F32 load_bf16_even(const uint16_t* p) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), 16));
}
HEADRACE_SIMD_INLINE F32 load_bf16_odd(const uint16_t* p) {
  // Two shifts: a mask would take one of 16 registers, which the linear kernel has no more of.
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_srli_epi32(bits, 16), 16));
}
HEADRACE_SIMD_INLINE void store_bf16(uint16_t* p, F32 v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i lsb = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i bias = _mm256_add_epi32(lsb, _mm256_set1_epi32(0x7fff));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
  const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m256i wide = _mm256_blendv_epi8(rounded, quiet, nan);
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(p),
      _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1)));
}
HEADRACE_SIMD_INLINE F32 load_f16(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
HEADRACE_SIMD_INLINE F32 load_f8_part(const uint8_t* p) {
  // Exponent and mantissa where a float16 has them.
  const __m128i bits = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m128i sign = _mm_slli_epi16(_mm_and_si128(bits, _mm_set1_epi16(0x80)), 8);
  const __m128i rest = _mm_slli_epi16(_mm_and_si128(bits, _mm_set1_epi16(0x7f)), 7);
  return _mm256_cvtph_ps(_mm_or_si128(sign, rest));
}
HEADRACE_SIMD_INLINE void store_f16(uint16_t* p, F32 v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

HEADRACE_SIMD_INLINE void touch_line(const void*) {}
HEADRACE_SIMD_INLINE void prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}

}  // namespace
}  // namespace headrace::HEADRACE_ISA
