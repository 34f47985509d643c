#pragma once

// AVX-512 (F, BW, VL, DQ): 16 floats. See simd.h for the vocabulary.

#include <immintrin.h>
#include <stdint.h>

namespace headrace::HEADRACE_ISA {
namespace {

using F32 = __m512;
constexpr int kLanes = 16;

HEADRACE_SIMD_INLINE F32 zero() { return _mm512_setzero_ps(); }
HEADRACE_SIMD_INLINE F32 set1(float x) { return _mm512_set1_ps(x); }
HEADRACE_SIMD_INLINE F32 load(const float* p) { return _mm512_loadu_ps(p); }
HEADRACE_SIMD_INLINE void store(float* p, F32 v) { _mm512_storeu_ps(p, v); }
HEADRACE_SIMD_INLINE __mmask16 first_lanes(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
HEADRACE_SIMD_INLINE F32 load_part(const float* p, int n) {
  return _mm512_maskz_loadu_ps(first_lanes(n), p);
}
HEADRACE_SIMD_INLINE void store_part(float* p, F32 v, int n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), v);
}
HEADRACE_SIMD_INLINE F32 add(F32 a, F32 b) { return _mm512_add_ps(a, b); }
HEADRACE_SIMD_INLINE F32 sub(F32 a, F32 b) { return _mm512_sub_ps(a, b); }
HEADRACE_SIMD_INLINE F32 mul(F32 a, F32 b) { return _mm512_mul_ps(a, b); }
HEADRACE_SIMD_INLINE F32 div(F32 a, F32 b) { return _mm512_div_ps(a, b); }
HEADRACE_SIMD_INLINE F32 max(F32 a, F32 b) { return _mm512_max_ps(a, b); }
HEADRACE_SIMD_INLINE F32 min(F32 a, F32 b) { return _mm512_min_ps(a, b); }
HEADRACE_SIMD_INLINE F32 sqrt(F32 v) { return _mm512_sqrt_ps(v); }
HEADRACE_SIMD_INLINE F32 fma(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }

HEADRACE_SIMD_INLINE float reduce_add(F32 v) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}
HEADRACE_SIMD_INLINE float reduce_max(F32 v) {
  const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_max_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}

HEADRACE_SIMD_INLINE void transpose(F32 (&rows)[kLanes]) {
  F32 quads[kLanes];  // of 4 x 4 blocks: quads[4 i + j] has row j of the i-th four rows' blocks
#pragma GCC unroll 4
  for (int i = 0; i < kLanes; i += 4) {
    const F32 a = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
    const F32 b = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    const F32 c = _mm512_unpacklo_ps(rows[i + 2], rows[i + 3]);
    const F32 d = _mm512_unpackhi_ps(rows[i + 2], rows[i + 3]);
    quads[i] = _mm512_shuffle_ps(a, c, 0x44);
    quads[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
    quads[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
    quads[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const F32 a = _mm512_shuffle_f32x4(quads[i], quads[i + 4], 0x88);
    const F32 b = _mm512_shuffle_f32x4(quads[i], quads[i + 4], 0xdd);
    const F32 c = _mm512_shuffle_f32x4(quads[i + 8], quads[i + 12], 0x88);
    const F32 d = _mm512_shuffle_f32x4(quads[i + 8], quads[i + 12], 0xdd);
    rows[i] = _mm512_shuffle_f32x4(a, c, 0x88);
    rows[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
    rows[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
    rows[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
  }
}

HEADRACE_SIMD_INLINE uint32_t greater_mask(F32 a, F32 b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}
/// Per lane: a > b ? yes : no.
HEADRACE_SIMD_INLINE F32 select_greater(F32 a, F32 b, F32 yes, F32 no) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), no, yes);
}
HEADRACE_SIMD_INLINE F32 round(F32 v) {
  return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/// v * 2^n for whole n.
HEADRACE_SIMD_INLINE F32 scale_by_power_of_two(F32 v, F32 n) { return _mm512_scalef_ps(v, n); }

HEADRACE_SIMD_INLINE F32 load_bf16(const uint16_t* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
HEADRACE_SIMD_INLINE F32 load_bf16_even(const uint16_t* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
}
HEADRACE_SIMD_INLINE F32 load_bf16_odd(const uint16_t* p) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(-0x10000)));
}
HEADRACE_SIMD_INLINE __m256i to_bf16(F32 v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i lsb = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i bias = _mm512_add_epi32(lsb, _mm512_set1_epi32(0x7fff));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16);
  const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(nan, rounded, quiet));
}
HEADRACE_SIMD_INLINE void store_bf16(uint16_t* p, F32 v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_bf16(v));
}
HEADRACE_SIMD_INLINE F32 load_f16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
HEADRACE_SIMD_INLINE F32 load_f8_part(const uint8_t* p) {
  // Exponent and mantissa where a float16 has them.
  const __m256i bits = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(bits, _mm256_set1_epi16(0x80)), 8);
  const __m256i rest = _mm256_slli_epi16(_mm256_and_si256(bits, _mm256_set1_epi16(0x7f)), 7);
  return _mm512_cvtph_ps(_mm256_or_si256(sign, rest));
}
HEADRACE_SIMD_INLINE void store_f16(uint16_t* p, F32 v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

HEADRACE_SIMD_INLINE void prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}

HEADRACE_SIMD_INLINE void touch_line(const void* p) {
  static_cast<void>(*static_cast<const volatile char*>(p));
}

#if defined(__AVX512BF16__)
#define HEADRACE_HAS_BF16_DOT 1
using Bf16Pairs = __m512bh;
HEADRACE_SIMD_INLINE Bf16Pairs load_pairs(const uint16_t* p) {
  return reinterpret_cast<Bf16Pairs>(_mm512_loadu_si512(p));
}
HEADRACE_SIMD_INLINE __m512i narrow_pairs(F32 low, F32 high) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}
HEADRACE_SIMD_INLINE Bf16Pairs interleave_pairs(F32 low, F32 high) {
  alignas(64) static const uint16_t kOrder[2 * kLanes] = {
      0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return reinterpret_cast<Bf16Pairs>(
      _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), narrow_pairs(low, high)));
}
/// The pair at p in every lane.
HEADRACE_SIMD_INLINE Bf16Pairs broadcast_pair(const uint16_t* p) {
  int32_t pair;
  __builtin_memcpy(&pair, p, sizeof pair);
  return reinterpret_cast<Bf16Pairs>(_mm512_set1_epi32(pair));
}
HEADRACE_SIMD_INLINE F32 dot_bf16(Bf16Pairs a, Bf16Pairs b, F32 c) {
  return _mm512_dpbf16_ps(c, a, b);
}
HEADRACE_SIMD_INLINE Bf16Pairs keep_halves(Bf16Pairs v, uint32_t halves) {
  return reinterpret_cast<Bf16Pairs>(_mm512_and_si512(
      reinterpret_cast<__m512i>(v), _mm512_set1_epi32(static_cast<int32_t>(halves))));
}
/// store_bf16 by one instruction: subnormal numbers become 0.
HEADRACE_SIMD_INLINE void store_bf16_normal(uint16_t* p, F32 v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)));
}
#endif

}  // namespace
}  // namespace headrace::HEADRACE_ISA
