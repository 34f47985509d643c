#include "backend/reference/reference_quant.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "backend/cpu/cpu_isa.h"
#include "backend/host/rounded_codes.h"
#include "tensor/dtype.h"

namespace headrace {

namespace {

/// Inputs that share a scale where rounds_rows().
int64_t scale_run(const QuantFormat& format, int64_t k) {
  return format.activations == Activations::kFloat8Groups ? format.group_size : k;
}

/// What the numbers of a row are as codes.
void round_like_rows(const QuantFormat& format, int64_t k, float* row) {
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
    }
  }
}

}  // namespace

void reference_round_weights(const QuantFormat& format, int64_t k, float* row) {
  if (rounds_rows(format)) return round_like_rows(format, k, row);
  const QuantKernels& kernels = *all_cpu_isas().back().quant;
  for (int64_t first = 0; first < k; first += format.group_size) {
    const int64_t count = std::min<int64_t>(format.group_size, k - first);
    float weights[kMaxQuantGroup] = {};
    std::copy_n(row + first, count, weights);
    QuantizedGroup group;
    kernels.quantize_group(weights, format.group_size, format.bits, &group);
    const float scale = bf16_to_f32(group.scale);
    for (int64_t i = 0; i < count; ++i) {
      row[first + i] = scale * static_cast<float>(group.codes[i] - quant_zero(format.bits));
    }
  }
}

void reference_read_codes(const WeightCodes& codes, int64_t feature, int64_t k, float* row) {
  const QuantFormat& format = codes.format();
  for (int64_t first = 0; first < k; first += format.group_size) {
    QuantizedGroup group;
    codes.read(feature, 1, first / format.group_size, &group);
    if (rounds_rows(format)) {
      for (int64_t i = 0; i < std::min<int64_t>(format.group_size, k - first); ++i) {
        row[first + i] = code_number(format, group.codes[i], group.wide_scale);
      }
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

}  // namespace headrace
