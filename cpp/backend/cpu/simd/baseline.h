#pragma once

// SSE2, which every x86-64 has: 4 floats. See simd.h for the vocabulary.

#include <emmintrin.h>
#include <stdint.h>

namespace headrace::HEADRACE_ISA {
namespace {

using F32 = __m128;
constexpr int kLanes = 4;

HEADRACE_SIMD_INLINE F32 zero() { return _mm_setzero_ps(); }
HEADRACE_SIMD_INLINE F32 set1(float x) { return _mm_set1_ps(x); }
HEADRACE_SIMD_INLINE F32 load(const float* p) { return _mm_loadu_ps(p); }
HEADRACE_SIMD_INLINE void store(float* p, F32 v) { _mm_storeu_ps(p, v); }
HEADRACE_SIMD_INLINE F32 load_part(const float* p, int n) {
  float lanes[kLanes] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return load(lanes);
}
HEADRACE_SIMD_INLINE void store_part(float* p, F32 v, int n) {
  float lanes[kLanes];
  store(lanes, v);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}
HEADRACE_SIMD_INLINE F32 add(F32 a, F32 b) { return _mm_add_ps(a, b); }
HEADRACE_SIMD_INLINE F32 sub(F32 a, F32 b) { return _mm_sub_ps(a, b); }
HEADRACE_SIMD_INLINE F32 mul(F32 a, F32 b) { return _mm_mul_ps(a, b); }
HEADRACE_SIMD_INLINE F32 div(F32 a, F32 b) { return _mm_div_ps(a, b); }
HEADRACE_SIMD_INLINE F32 max(F32 a, F32 b) { return _mm_max_ps(a, b); }
HEADRACE_SIMD_INLINE F32 min(F32 a, F32 b) { return _mm_min_ps(a, b); }
HEADRACE_SIMD_INLINE F32 sqrt(F32 v) { return _mm_sqrt_ps(v); }
HEADRACE_SIMD_INLINE F32 fma(F32 a, F32 b, F32 c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }

HEADRACE_SIMD_INLINE float reduce_add(F32 v) {
  const F32 pair = _mm_add_ps(v, _mm_movehl_ps(v, v));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}
HEADRACE_SIMD_INLINE float reduce_max(F32 v) {
  const F32 pair = _mm_max_ps(v, _mm_movehl_ps(v, v));
  return _mm_cvtss_f32(_mm_max_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}

HEADRACE_SIMD_INLINE void transpose(F32 (&rows)[kLanes]) {
  _MM_TRANSPOSE4_PS(rows[0], rows[1], rows[2], rows[3]);
}

HEADRACE_SIMD_INLINE uint32_t greater_mask(F32 a, F32 b) {
  return static_cast<uint32_t>(_mm_movemask_ps(_mm_cmpgt_ps(a, b)));
}
HEADRACE_SIMD_INLINE __m128i select_bits(__m128i mask, __m128i yes, __m128i no) {
  return _mm_or_si128(_mm_and_si128(mask, yes), _mm_andnot_si128(mask, no));
}
/// Per lane: a > b ? yes : no.
HEADRACE_SIMD_INLINE F32 select_greater(F32 a, F32 b, F32 yes, F32 no) {
  const __m128i mask = _mm_castps_si128(_mm_cmpgt_ps(a, b));
  return _mm_castsi128_ps(select_bits(mask, _mm_castps_si128(yes), _mm_castps_si128(no)));
}
/// To the nearest whole number; for |v| < 2^31.
HEADRACE_SIMD_INLINE F32 round(F32 v) { return _mm_cvtepi32_ps(_mm_cvtps_epi32(v)); }
/// v * 2^n for whole n in [-252, 254].
HEADRACE_SIMD_INLINE F32 scale_by_power_of_two(F32 v, F32 n) {
  const __m128i whole = _mm_cvtps_epi32(n);
  const __m128i low = _mm_srai_epi32(whole, 1);
  const __m128i high = _mm_sub_epi32(whole, low);
  const __m128i bias = _mm_set1_epi32(127);
  const F32 a = _mm_castsi128_ps(_mm_slli_epi32(_mm_add_epi32(low, bias), 23));
  const F32 b = _mm_castsi128_ps(_mm_slli_epi32(_mm_add_epi32(high, bias), 23));
  return mul(mul(v, a), b);
}

HEADRACE_SIMD_INLINE F32 load_bf16(const uint16_t* p) {
  const __m128i bits = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), bits));
}
HEADRACE_SIMD_INLINE F32 load_bf16_even(const uint16_t* p) {
  return _mm_castsi128_ps(_mm_slli_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), 16));
}
HEADRACE_SIMD_INLINE F32 load_bf16_odd(const uint16_t* p) {
  return _mm_castsi128_ps(_mm_and_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)),
                                        _mm_set1_epi32(-0x10000)));
}
/// The low halves of four 32-bit lanes.
HEADRACE_SIMD_INLINE void store_low_halves(uint16_t* p, __m128i v) {
  const __m128i sign_extended = _mm_srai_epi32(_mm_slli_epi32(v, 16), 16);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi32(sign_extended, sign_extended));
}
HEADRACE_SIMD_INLINE void store_bf16(uint16_t* p, F32 v) {
  const __m128i bits = _mm_castps_si128(v);
  const __m128i lsb = _mm_and_si128(_mm_srli_epi32(bits, 16), _mm_set1_epi32(1));
  const __m128i bias = _mm_add_epi32(lsb, _mm_set1_epi32(0x7fff));
  const __m128i rounded = _mm_srli_epi32(_mm_add_epi32(bits, bias), 16);
  const __m128i quiet = _mm_or_si128(_mm_srli_epi32(bits, 16), _mm_set1_epi32(0x40));
  const __m128i nan = _mm_castps_si128(_mm_cmpunord_ps(v, v));
  store_low_halves(p, select_bits(nan, quiet, rounded));
}
HEADRACE_SIMD_INLINE F32 load_f8_part(const uint8_t* p) {
  int four;
  __builtin_memcpy(&four, p, sizeof four);
  const __m128i none = _mm_setzero_si128();
  const __m128i bits = _mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(four), none), none);
  const __m128i sign = _mm_slli_epi32(_mm_and_si128(bits, _mm_set1_epi32(0x80)), 24);
  const __m128i rest = _mm_slli_epi32(_mm_and_si128(bits, _mm_set1_epi32(0x7f)), 20);
  // 2^112: the exponent's bias from 7 to 127, less 8.
  const F32 size = mul(_mm_castsi128_ps(rest), set1(0x1p112f));
  return _mm_or_ps(size, _mm_castsi128_ps(sign));
}
HEADRACE_SIMD_INLINE F32 load_f16(const uint16_t* p) {
  const __m128i bits =
      _mm_unpacklo_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)), _mm_setzero_si128());
  const __m128i sign = _mm_slli_epi32(_mm_and_si128(bits, _mm_set1_epi32(0x8000)), 16);
  const __m128i magnitude = _mm_and_si128(bits, _mm_set1_epi32(0x7fff));
  // 2^112 moves the exponent's bias from 15 to 127; infinities and NaNs get all exponent bits.
  const F32 scaled = mul(_mm_castsi128_ps(_mm_slli_epi32(magnitude, 13)), set1(0x1p112f));
  const __m128i special =
      _mm_and_si128(_mm_cmpgt_epi32(magnitude, _mm_set1_epi32(0x7bff)), _mm_set1_epi32(0x7f800000));
  return _mm_castsi128_ps(_mm_or_si128(_mm_or_si128(_mm_castps_si128(scaled), special), sign));
}
HEADRACE_SIMD_INLINE void store_f16(uint16_t* p, F32 v) {
  const __m128i bits = _mm_castps_si128(v);
  const __m128i sign = _mm_srli_epi32(_mm_and_si128(bits, _mm_set1_epi32(INT32_MIN)), 16);
  const __m128i magnitude = _mm_and_si128(bits, _mm_set1_epi32(0x7fffffff));
  const __m128i odd = _mm_and_si128(_mm_srli_epi32(magnitude, 13), _mm_set1_epi32(1));
  const __m128i normal = _mm_srli_epi32(
      _mm_add_epi32(_mm_add_epi32(magnitude, _mm_set1_epi32(static_cast<int>(0xc8000fffu))), odd),
      13);
  // Adding 0.5 aligns the mantissa of a subnormal half so that the FPU rounds it to even.
  const __m128i subnormal = _mm_sub_epi32(
      _mm_castps_si128(add(_mm_castsi128_ps(magnitude), set1(0.5f))), _mm_set1_epi32(0x3f000000));
  const __m128i is_small = _mm_cmplt_epi32(magnitude, _mm_set1_epi32(0x38800000));
  const __m128i is_large = _mm_cmpgt_epi32(magnitude, _mm_set1_epi32(0x477fefff));
  const __m128i is_nan = _mm_cmpgt_epi32(magnitude, _mm_set1_epi32(0x7f800000));
  __m128i half = select_bits(is_small, subnormal, normal);
  half = select_bits(is_large, _mm_set1_epi32(0x7c00), half);
  half = select_bits(is_nan, _mm_set1_epi32(0x7e00), half);
  store_low_halves(p, _mm_or_si128(half, sign));
}

HEADRACE_SIMD_INLINE void touch_line(const void*) {}
HEADRACE_SIMD_INLINE void prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}

}  // namespace
}  // namespace headrace::HEADRACE_ISA
