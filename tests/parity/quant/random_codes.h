#pragma once

// Weights that come as codes, made up.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "parity/linear/linear_harness.h"
#include "tensor/float4.h"

namespace headrace::parity {

/// An order of k inputs.
inline std::vector<int32_t> shuffled(Random& random, int64_t k) {
  std::vector<int32_t> out(static_cast<size_t>(k));
  std::iota(out.begin(), out.end(), 0);
  for (size_t i = out.size(); i > 1; --i) {
    std::swap(out[i - 1], out[size_t(random.integer(0, static_cast<int64_t>(i) - 1))]);
  }
  return out;
}

/// Random codes, MXFP4 among them. Scales are powers of two, so that everything below is exact.
class RandomCodes final : public WeightCodes {
 public:
  RandomCodes(Random& random, const QuantFormat& format, Shape shape, std::vector<int32_t> order)
      : format_(format), shape_(shape), order_(std::move(order)) {
    const int64_t groups = (shape.k + format.group_size - 1) / format.group_size;
    const int64_t top = format.bits == 8 ? 255 : 15;
    for (int64_t i = 0; i < shape.n * groups; ++i) {
      QuantizedGroup& group = groups_.emplace_back();
      const float scale = std::ldexp(1.0f, static_cast<int>(random.integer(-2, 2)));
      group.scale = format.float4       ? static_cast<uint16_t>(127 + std::ilogb(scale))
                    : format.f16_scales ? f32_to_f16(scale)
                                        : f32_to_bf16(scale);
      // 16 is what a zero point of four bits may be that was stored one less than it is.
      group.zero =
          static_cast<uint8_t>(format.zero_points ? random.integer(0, format.bits == 8 ? 255 : 16)
                                                  : quant_zero(format.bits));
      const int64_t count =
          std::min<int64_t>(format.group_size, shape.k - i % groups * format.group_size);
      std::memset(group.codes, group.zero & static_cast<int>(top), sizeof group.codes);
      for (int64_t j = 0; j < count; ++j) {
        group.codes[j] = static_cast<uint8_t>(random.integer(0, top));
      }
    }
  }

  const QuantFormat& format() const noexcept override { return format_; }
  const std::vector<int32_t>& order() const noexcept override { return order_; }
  void read(int64_t first, int64_t count, int64_t group, QuantizedGroup* out) const override {
    for (int64_t i = 0; i < count; ++i) out[i] = at(first + i, group);
  }
  WeightPart part() const {
    WeightPart out;
    out.n = shape_.n;
    out.k = shape_.k;
    out.codes = this;
    return out;
  }
  void set_scale(size_t index, uint16_t bits) { groups_.at(index).scale = bits; }
  void set_codes(size_t index, uint8_t code) {
    std::memset(groups_.at(index).codes, code, sizeof groups_.at(index).codes);
  }
  /// Element (n, k), k as the inputs come.
  float weight(int64_t n, int64_t k) const {
    int64_t position = k;
    if (!order_.empty()) {
      position = std::find(order_.begin(), order_.end(), static_cast<int32_t>(k)) - order_.begin();
    }
    const QuantizedGroup& group = at(n, position / format_.group_size);
    if (format_.float4) {
      return e2m1_to_f32(group.codes[position % format_.group_size]) *
             e8m0_to_f32(static_cast<uint8_t>(group.scale));
    }
    const float scale = format_.f16_scales ? f16_to_f32(group.scale) : bf16_to_f32(group.scale);
    return scale *
           static_cast<float>(group.codes[position % format_.group_size] - int32_t{group.zero});
  }

 private:
  const QuantizedGroup& at(int64_t n, int64_t group) const {
    return groups_[size_t(n * ((shape_.k + format_.group_size - 1) / format_.group_size) + group)];
  }

  QuantFormat format_;
  Shape shape_;
  std::vector<int32_t> order_;
  std::vector<QuantizedGroup> groups_;
};

}  // namespace headrace::parity
