#include "backend/cpu/kernels/quant_kernels.h"
#include "backend/cpu/simd/int8.h"

// Compiled once per ISA.

namespace headrace::HEADRACE_ISA {
namespace {

constexpr float kTiny = 0x1p-100f;  // 127 divided by less could overflow

/// Sixteen partial sums, so that their order is the same whatever the vectors' width.
struct Sums {
  static constexpr int kCount = 16;
  F32 parts[kCount / kLanes];
  HEADRACE_SIMD_INLINE void clear() {
    for (F32& part : parts) part = zero();
  }
  HEADRACE_SIMD_INLINE float total() const {
    float lanes[kCount];
    for (int i = 0; i < kCount / kLanes; ++i) store(lanes + i * kLanes, parts[i]);
    for (int width = kCount / 2; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
    }
    return lanes[0];
  }
};

struct Fit {
  float product;  ///< sum of weight * code
  float square;   ///< sum of code^2
};

/// Rounds weights / scale into [low, high], stores the codes if asked, and says how they fit.
HEADRACE_SIMD_INLINE Fit round_group(const float* weights, int32_t size, float scale, float low,
                                     float high, float* codes) {
  const F32 factor = set1(1.0f / scale), least = set1(low), most = set1(high);
  Sums product, square;
  product.clear();
  square.clear();
  for (int32_t i = 0; i < size; i += Sums::kCount) {
#pragma GCC unroll 4
    for (int j = 0; j < Sums::kCount / kLanes; ++j) {
      const F32 w = load(weights + i + j * kLanes);
      const F32 code = round(min(max(mul(w, factor), least), most));
      product.parts[j] = add(product.parts[j], mul(w, code));
      square.parts[j] = add(square.parts[j], mul(code, code));
      if (codes != nullptr) store(codes + i + j * kLanes, code);
    }
  }
  return {product.total(), square.total()};
}

uint16_t to_bf16(float x) {
  float lanes[kLanes] = {};
  lanes[0] = x;
  uint16_t bits[kLanes];
  store_bf16(bits, load(lanes));
  return bits[0];
}

/// The weight of largest magnitude, of w and -w the positive one; NaN if one isn't finite.
float extreme(const float* weights, int32_t size) {
  F32 high = zero(), low = zero(), probe = zero();
  for (int32_t i = 0; i < size; i += kLanes) {
    const F32 w = load(weights + i);
    high = max(high, w);
    low = max(low, sub(zero(), w));
    probe = add(probe, mul(w, zero()));
  }
  const float up = reduce_max(high), down = reduce_max(low);
  return (up >= down ? up : -down) + reduce_add(probe);
}

/// With the best scale for given codes, product / square, the squared error is
/// sum w^2 - product^2 / square: the best codes have the largest product^2 / square.
float best_int4_scale(const float* weights, int32_t size, float largest) {
  float best = largest / -8.0f, best_gain = -1.0f;
  for (int i = 0; i < 8; ++i) {
    const float scale = largest * (1.0f - 0.04f * static_cast<float>(i)) / -8.0f;
    const Fit fit = round_group(weights, size, scale, -8.0f, 7.0f, nullptr);
    const float gain = fit.product / fit.square * fit.product;
    if (gain > best_gain) {
      best_gain = gain;
      best = scale;
    }
  }
  return best;
}

}  // namespace

void quant_quantize_group(const float* weights, int32_t size, int32_t bits, QuantizedGroup* out) {
  const float largest = extreme(weights, size);
  const int32_t zero_code = quant_zero(bits);
  out->zero = static_cast<uint8_t>(zero_code);
  const bool is_number = largest == largest;
  if (!is_number || (largest < kTiny && largest > -kTiny)) {
    out->scale = is_number ? 0 : 0x7fc0;
    for (int32_t i = 0; i < size; ++i) out->codes[i] = static_cast<uint8_t>(zero_code);
    return;
  }
  float codes[kMaxQuantGroup];
  const Fit fit = bits == 8 ? round_group(weights, size, largest / 127.0f, -127.0f, 127.0f, codes)
                            : round_group(weights, size, best_int4_scale(weights, size, largest),
                                          -8.0f, 7.0f, codes);
  out->scale = to_bf16(fit.product / fit.square);
  for (int32_t i = 0; i < size; ++i) {
    out->codes[i] = static_cast<uint8_t>(static_cast<int32_t>(codes[i]) + zero_code);
  }
}

}  // namespace headrace::HEADRACE_ISA
