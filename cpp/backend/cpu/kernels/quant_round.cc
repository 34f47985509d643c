#include "backend/cpu/kernels/quant_kernels.h"
#include "backend/cpu/simd/int8.h"

// Quantizes weights. Compiled once per ISA.

namespace headrace::HEADRACE_ISA {
namespace {

constexpr float kTiny = 0x1p-100f;  // 127 divided by less could overflow
// Twice as many, half as far apart, would leave 0.5 % less squared error; their sums fill the
// registers of AVX2.
constexpr int kClipRatios = 4;
constexpr float kClipStep = 0.06f;
constexpr int kColumns = 4 * kLanes;  // of a panel

/// Groups side by side, one in each lane: [size][kLanes].
struct LaneGroups {
  const float* weights;
  int32_t size;
};

struct Fit {
  F32 product;  ///< sum of weight * code
  F32 square;   ///< sum of code^2
};

HEADRACE_SIMD_INLINE Fit no_fit() { return {zero(), zero()}; }

/// Adds one weight of each lane as it is with codes in [low, high] at 1 / factor. Not fused, so
/// that every ISA has the same bits.
HEADRACE_SIMD_INLINE F32 add_weight(F32 w, F32 factor, F32 low, F32 high, Fit& fit) {
  const F32 code = round(min(max(mul(w, factor), low), high));
  fit.product = add(fit.product, mul(w, code));
  fit.square = add(fit.square, mul(code, code));
  return code;
}

/// Of each lane the weight of largest magnitude, of w and -w the positive one, 1 where all are
/// tiny; NaN if one isn't finite.
HEADRACE_SIMD_INLINE F32 extremes(const LaneGroups& groups, F32* probe) {
  F32 high = zero(), low = zero(), strange = zero();
  for (int32_t i = 0; i < groups.size; ++i) {
    const F32 w = load(groups.weights + i * kLanes);
    high = max(high, w);
    low = max(low, sub(zero(), w));
    strange = add(strange, mul(w, zero()));
  }
  *probe = strange;
  const F32 largest = select_greater(low, high, sub(zero(), low), high);
  return add(select_greater(set1(kTiny), max(high, low), set1(1.0f), largest), strange);
}

/// With the best scale for given codes, product / square, the squared error is
/// sum w^2 - product^2 / square: the best codes have the largest product^2 / square. Returns the
/// factor, 1 / scale, of the best clipping.
F32 best_int4_factors(const LaneGroups& groups, F32 largest) {
  const F32 low = set1(-8.0f), high = set1(7.0f);
  F32 factors[kClipRatios];
  Fit fits[kClipRatios];
#pragma GCC unroll 4
  for (int j = 0; j < kClipRatios; ++j) {
    factors[j] = div(set1(-8.0f), mul(largest, set1(1.0f - kClipStep * static_cast<float>(j))));
    fits[j] = no_fit();
  }
  for (int32_t i = 0; i < groups.size; ++i) {
    const F32 w = load(groups.weights + i * kLanes);
#pragma GCC unroll 4
    for (int j = 0; j < kClipRatios; ++j) add_weight(w, factors[j], low, high, fits[j]);
  }
  F32 best = factors[0], best_gain = set1(-1.0f);
#pragma GCC unroll 4
  for (int j = 0; j < kClipRatios; ++j) {
    const F32 gain = mul(div(fits[j].product, fits[j].square), fits[j].product);
    best = select_greater(gain, best_gain, factors[j], best);
    best_gain = select_greater(gain, best_gain, gain, best_gain);
  }
  return best;
}

/// Codes less their zero, [size][kLanes]; returns the scales.
F32 round_groups(const LaneGroups& groups, int32_t bits, float* codes) {
  F32 probe;
  const F32 largest = extremes(groups, &probe);
  const F32 factor = bits == 8 ? div(set1(127.0f), largest) : best_int4_factors(groups, largest);
  const F32 low = set1(bits == 8 ? -127.0f : -8.0f), high = set1(bits == 8 ? 127.0f : 7.0f);
  Fit fit = no_fit();
  for (int32_t i = 0; i < groups.size; ++i) {
    store(codes + i * kLanes,
          add_weight(load(groups.weights + i * kLanes), factor, low, high, fit));
  }
  // A group of zeros has no scale, one that isn't finite NaN.
  const F32 scale = select_greater(fit.square, zero(), div(fit.product, fit.square), zero());
  return add(scale, probe);
}

/// weights[i][c] = columns[c][i] of kLanes columns, four by four, as SSE can on every x86.
void into_lanes(const float* columns, int64_t stride, int32_t size, float* weights) {
  for (int c = 0; c < kLanes; c += 4) {
    const float* from = columns + c * stride;
    float* to = weights + c;
    for (int32_t i = 0; i < size; i += 4, to += 4 * kLanes) {
      __m128 row0 = _mm_loadu_ps(from + i), row1 = _mm_loadu_ps(from + stride + i);
      __m128 row2 = _mm_loadu_ps(from + 2 * stride + i), row3 = _mm_loadu_ps(from + 3 * stride + i);
      _MM_TRANSPOSE4_PS(row0, row1, row2, row3);
      _mm_storeu_ps(to, row0);
      _mm_storeu_ps(to + kLanes, row1);
      _mm_storeu_ps(to + 2 * kLanes, row2);
      _mm_storeu_ps(to + 3 * kLanes, row3);
    }
  }
}

/// Four codes of each lane, from a row of codes on, as the bytes of an int32.
HEADRACE_SIMD_INLINE I32 four_codes(const float* codes, I32 zero_code) {
  I32 out = add_i32(to_i32(load(codes + 3 * kLanes)), zero_code);
#pragma GCC unroll 3
  for (int i = 2; i >= 0; --i) {
    out = add_i32(shift_left<8>(out), add_i32(to_i32(load(codes + i * kLanes)), zero_code));
  }
  return out;
}

/// Packs kLanes columns of a group; `out` is where the codes of the first belong.
void put_codes(const float* codes, const QuantFormat& format, char* out) {
  const I32 zero_code = set1_i32(quant_zero(format.bits));
  const int32_t step = 32 / format.bits;
  for (int32_t i = 0; i < format.group_size; i += step) {
    I32 word = four_codes(codes + i * kLanes, zero_code);
    if (format.bits == 4) {
      word = add_i32(word, shift_left<4>(four_codes(codes + (i + 4) * kLanes, zero_code)));
    }
    store_i32(out, word);
    out += 4 * kColumns;
  }
}

}  // namespace

void quant_quantize_panel(const float* columns, int64_t stride, const QuantFormat& format,
                          void* group) {
  float weights[kMaxQuantGroup * kLanes], codes[kMaxQuantGroup * kLanes];
  char* out = static_cast<char*>(group);
  for (int first = 0; first < kColumns; first += kLanes) {
    into_lanes(columns + first * stride, stride, format.group_size, weights);
    const F32 scales = round_groups({weights, format.group_size}, format.bits, codes);
    store_bf16(reinterpret_cast<uint16_t*>(out) + first, scales);
    put_codes(codes, format, out + quant_codes_offset(format, kColumns) + 4 * first);
  }
}

void quant_quantize_group(const float* weights, int32_t size, int32_t bits, QuantizedGroup* out) {
  float all[kMaxQuantGroup * kLanes], codes[kMaxQuantGroup * kLanes];
  for (int32_t i = 0; i < size; ++i) store(all + i * kLanes, set1(weights[i]));
  uint16_t scales[kLanes];
  store_bf16(scales, round_groups({all, size}, bits, codes));
  out->scale = scales[0];
  out->zero = static_cast<uint8_t>(quant_zero(bits));
  for (int32_t i = 0; i < size; ++i) {
    out->codes[i] = static_cast<uint8_t>(static_cast<int32_t>(codes[i * kLanes]) + out->zero);
  }
}

}  // namespace headrace::HEADRACE_ISA
