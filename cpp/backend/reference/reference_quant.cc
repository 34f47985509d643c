#include "backend/reference/reference_quant.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_isa.h"
#include "tensor/dtype.h"

namespace headrace {

void reference_round_weights(const QuantFormat& format, int64_t k, float* row) {
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
