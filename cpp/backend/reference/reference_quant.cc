#include "backend/reference/reference_quant.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "backend/host/rounded_codes.h"
#include "tensor/dtype.h"
#include "tensor/float4.h"
#include "tensor/float8.h"

namespace headrace {

namespace {

constexpr int64_t kGroup = kMaxQuantGroup;

/// Inputs that share a scale where rounds_rows().
int64_t scale_run(const QuantFormat& format, int64_t k) {
  return format.activations == Activations::kFloat8Groups ? format.group_size : k;
}

/// What the numbers of a row are as codes. `scales` may be null.
void round_like_rows(const QuantFormat& format, int64_t k, float* row, float* scales = nullptr) {
  const int64_t run = scale_run(format, k);
  for (int64_t first = 0; first < k; first += run) {
    const std::span<float> all(row + first, static_cast<size_t>(std::min(run, k - first)));
    const float top = largest_size(all);
    for (size_t i = 0; i < all.size(); i += kMaxQuantGroup) {
      const auto piece = all.subspan(i, std::min<size_t>(kMaxQuantGroup, all.size() - i));
      QuantizedGroup group;
      round_like_activations(format, piece, top, &group);
      for (size_t j = 0; j < piece.size(); ++j) {
        piece[j] = code_number(format, group.codes[j], group.wide_scale);
      }
      if (scales != nullptr) scales[first / run] = group.wide_scale;
    }
  }
}

/// Codes of weights at 1 / factor, and what they fit.
struct Rounding {
  std::vector<float> codes;
  float product = 0.0f;  // sum of weight * code
  float square = 0.0f;   // sum of code^2
};

Rounding round_at(std::span<const float> weights, float factor, float low, float high) {
  Rounding out;
  for (const float w : weights) {
    const float code = std::nearbyint(std::clamp(w * factor, low, high));
    out.codes.push_back(code);
    out.product += w * code;
    out.square += code * code;
  }
  return out;
}

float largest_weight(std::span<const float> weights) {
  float high = 0.0f, low = 0.0f;
  for (const float w : weights) {
    high = std::max(high, w);
    low = std::max(low, -w);
  }
  if (std::max(high, low) < 0x1p-100f) return 1.0f;  // 127 divided by less could overflow
  return low > high ? -low : high;
}

Rounding best_int4(std::span<const float> weights, float largest) {
  Rounding best;
  float best_gain = -1.0f;
  for (const float ratio : {1.0f, 1.0f - 0.06f, 1.0f - 0.06f * 2.0f, 1.0f - 0.06f * 3.0f}) {
    Rounding tried = round_at(weights, -8.0f / (largest * ratio), -8.0f, 7.0f);
    const float gain = tried.product / tried.square * tried.product;
    if (!(gain > best_gain)) continue;
    best = std::move(tried);
    best_gain = gain;
  }
  // A group of zeros gains nothing, and one whose sums overflow what is no number.
  return best.codes.empty() ? round_at(weights, -8.0f / largest, -8.0f, 7.0f) : best;
}

}  // namespace

void reference_quantize_group(const float* weights, int32_t size, int32_t bits,
                              QuantizedGroup* out) {
  const std::span<const float> group(weights, static_cast<size_t>(size));
  const auto zero = static_cast<uint8_t>(quant_zero(bits));
  out->zero = zero;
  std::fill_n(out->codes, size, zero);
  if (!std::ranges::all_of(group, [](float w) { return std::isfinite(w); })) {
    out->scale = f32_to_bf16(std::numeric_limits<float>::quiet_NaN());
    return;
  }
  const float largest = largest_weight(group);
  const Rounding rounded =
      bits == 8 ? round_at(group, 127.0f / largest, -127.0f, 127.0f) : best_int4(group, largest);
  out->scale = f32_to_bf16(rounded.square > 0.0f ? rounded.product / rounded.square : 0.0f);
  for (int32_t i = 0; i < size; ++i) {
    const auto code = static_cast<int32_t>(rounded.codes[static_cast<size_t>(i)]);
    out->codes[i] = static_cast<uint8_t>(code + zero);
  }
}

int64_t reference_scales(const QuantFormat& format, int64_t k) {
  if (!rounds_rows(format)) return 0;
  const int64_t run = scale_run(format, k);
  return (k + run - 1) / run;
}

void reference_round_weights(const QuantFormat& format, int64_t k, float* row, float* scales) {
  if (rounds_rows(format)) return round_like_rows(format, k, row, scales);
  for (int64_t first = 0; first < k; first += format.group_size) {
    const int64_t count = std::min<int64_t>(format.group_size, k - first);
    float weights[kMaxQuantGroup] = {};
    std::copy_n(row + first, count, weights);
    QuantizedGroup group;
    reference_quantize_group(weights, format.group_size, format.bits, &group);
    const float scale = bf16_to_f32(group.scale);
    for (int64_t i = 0; i < count; ++i) {
      row[first + i] = scale * static_cast<float>(group.codes[i] - quant_zero(format.bits));
    }
  }
}

void reference_read_codes(const WeightCodes& codes, int64_t feature, int64_t k, float* row,
                          float* scales) {
  const QuantFormat& format = codes.format();
  for (int64_t first = 0; first < k; first += format.group_size) {
    QuantizedGroup group;
    codes.read(feature, 1, first / format.group_size, &group);
    if (format.float4) {
      const float scale = e8m0_to_f32(static_cast<uint8_t>(group.scale));
      for (int64_t i = 0; i < format.group_size; ++i) {
        row[first + i] = e2m1_to_f32(group.codes[i]) * scale;
      }
      continue;
    }
    if (rounds_rows(format)) {
      for (int64_t i = 0; i < std::min<int64_t>(format.group_size, k - first); ++i) {
        row[first + i] = code_number(format, group.codes[i], group.wide_scale);
      }
      scales[first / scale_run(format, k)] = group.wide_scale;
      continue;
    }
    const float scale = format.f16_scales ? f16_to_f32(group.scale) : bf16_to_f32(group.scale);
    const int64_t count = std::min<int64_t>(format.group_size, k - first);
    for (int64_t i = 0; i < count; ++i) {
      row[first + i] = scale * static_cast<float>(group.codes[i] - group.zero);
    }
  }
}

double reference_quant_dot(const QuantFormat& format, const float* x, const float* weights,
                           int64_t k) {
  double sum = 0.0;
  if (format.activations == Activations::kWhole) {
    for (int64_t i = 0; i < k; ++i) sum += double{x[i]} * double{weights[i]};
    return sum;
  }
  // One bad number makes a NaN of the row's steps, and so of all its results.
  for (int64_t i = 0; i < k; ++i) {
    if (!std::isfinite(x[i])) return std::nan("");
  }
  if (rounds_rows(format)) {
    std::vector<float> rounded(x, x + k);
    round_like_rows(format, k, rounded.data());
    for (int64_t i = 0; i < k; ++i) sum += double{rounded[size_t(i)]} * double{weights[i]};
    return sum;
  }
  for (int64_t first = 0; first < k; first += format.group_size) {
    const int64_t last = std::min<int64_t>(first + format.group_size, k);
    float top = 0.0f;
    for (int64_t i = first; i < last; ++i) top = std::max(top, std::abs(x[i]));
    if (top < 0x1p-100f) continue;
    const double step = static_cast<double>(top / 127.0f);
    for (int64_t i = first; i < last; ++i) {
      const double q = std::nearbyint(x[i] * (127.0f / top));
      sum += step * q * static_cast<double>(weights[i]);
    }
  }
  return sum;
}

double reference_float8_dot(const QuantFormat& format, Float8Sum add, const float* x,
                            const float* weights, const float* scales, int64_t k) {
  std::vector<float> row(x, x + k), row_scales(static_cast<size_t>(reference_scales(format, k)));
  if (!std::ranges::all_of(row, [](float one) { return std::isfinite(one); })) {
    return std::nan("");
  }
  round_like_rows(format, k, row.data(), row_scales.data());
  // A number over its scale is its code but for two roundings.
  const auto code = [](float number, float scale) {
    return scale == 0.0f ? uint8_t{0} : f32_to_e4m3(number / scale);
  };
  double sum = 0.0;
  for (int64_t first = 0; first < k; first += kGroup) {
    const int64_t run = first / scale_run(format, k), count = std::min(k - first, kGroup);
    const float row_scale = row_scales[static_cast<size_t>(run)], scale = scales[run];
    uint8_t codes[2][kMaxQuantGroup];
    for (int64_t i = 0; i < count; ++i) {
      codes[0][i] = code(row[static_cast<size_t>(first + i)], row_scale);
      codes[1][i] = code(weights[first + i], scale);
    }
    sum += double{add(codes[0], codes[1], static_cast<int>(count))} * double{row_scale} * scale;
  }
  return sum;
}

}  // namespace headrace
