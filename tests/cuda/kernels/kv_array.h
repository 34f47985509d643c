#pragma once

// A layer's keys, or values, as a cache of any dtype has them (kernels/kv_layout.h), written and
// read by the host for the kernels' tests.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cuda/kernels/kv_layout.h"
#include "device_data.h"
#include "tensor/float8.h"

namespace headrace::cuda {

/// Codes of one head and their scales.
struct HeadCodes {
  std::vector<uint8_t> codes;  ///< one for each number
  float step, low;

  static HeadCodes make(DType dtype, const float* x, int32_t d) {
    const auto [least, most] = std::minmax_element(x, x + d);
    const float largest = std::max(-*least, *most);
    HeadCodes out{std::vector<uint8_t>(static_cast<size_t>(d)), 1.0f, 0.0f};
    if (dtype == DType::kU4) {
      out.low = round_to_dtype(DType::kBF16, *least);
      out.step = round_to_dtype(DType::kBF16, (*most - out.low) / 15.0f);
    } else {
      out.step = largest / (dtype == DType::kI8 ? 127.0f : 448.0f);
    }
    if (out.step == 0.0f) out.step = 1.0f;
    for (size_t i = 0; i < out.codes.size(); ++i) {
      const float steps = (x[i] - out.low) / out.step;
      out.codes[i] = dtype == DType::kF8E4M3 ? f32_to_e4m3(std::clamp(steps, -448.0f, 448.0f))
                     : dtype == DType::kI8
                         ? static_cast<uint8_t>(128 + std::lround(steps))
                         : static_cast<uint8_t>(std::clamp(std::nearbyint(steps), 0.0f, 15.0f));
    }
    return out;
  }
  static float number(DType dtype, uint8_t code, float step, float low) {
    if (dtype == DType::kF8E4M3) return step * e4m3_to_f32(code);
    return low + step * (static_cast<float>(code) - (dtype == DType::kI8 ? 128.0f : 0.0f));
  }
};

class KvArray {
 public:
  /// NaN wherever nothing is written.
  KvArray(DType dtype, const KvLayout& layout, int64_t blocks)
      : dtype_(dtype),
        layout_(layout),
        rows_(blocks * layout.block_stride),
        row_bytes_(static_cast<size_t>(kv_row_bytes(dtype, layout.head_dim))),
        numbers_(static_cast<size_t>(rows_) * row_bytes_),
        scales_(static_cast<size_t>(kv_has_scales(dtype) ? blocks * layout.scale_stride : 1)) {
    fill(std::numeric_limits<float>::quiet_NaN());
  }

  void* data() const { return numbers_.data(); }
  void* scales() const { return kv_has_scales(dtype_) ? scales_.data() : nullptr; }

  /// What blocks hold that others have used: of codes, scales of `value` and codes that are NaN
  /// where there are such.
  void fill(float value) {
    for (size_t i = 0; i < scales_.size(); ++i) scales_.data()[i] = scale_bits(value, value);
    for (int64_t row = 0; row < rows_; ++row) {
      for (int32_t i = 0; i < layout_.head_dim; ++i) {
        if (kv_has_scales(dtype_)) {
          set_code(row, i, dtype_ == DType::kU4 ? 15 : 0x7f);
        } else {
          set_number(row, i, value);
        }
      }
    }
  }

  /// The head of a token.
  void write(int64_t slot, int32_t head, const float* x) {
    const int64_t row = layout_.row(slot, head);
    const int32_t d = layout_.head_dim;
    if (!kv_has_scales(dtype_)) {
      for (int32_t i = 0; i < d; ++i) set_number(row, i, x[i]);
      return;
    }
    const HeadCodes made = HeadCodes::make(dtype_, x, d);
    for (int32_t i = 0; i < d; ++i) set_code(row, i, made.codes[static_cast<size_t>(i)]);
    scales_.data()[layout_.scale(slot, head)] = scale_bits(made.step, made.low);
  }

  float read(int64_t slot, int32_t head, int32_t i) const {
    const int64_t row = layout_.row(slot, head);
    if (!kv_has_scales(dtype_)) return number(row, i);
    const uint32_t bits = scales_.data()[layout_.scale(slot, head)];
    float step;
    std::memcpy(&step, &bits, sizeof step);
    float low = 0.0f;
    if (dtype_ == DType::kU4) {
      step = bf16_to_f32(static_cast<uint16_t>(bits));
      low = bf16_to_f32(static_cast<uint16_t>(bits >> 16));
    }
    return HeadCodes::number(dtype_, code(row, i), step, low);
  }

  /// What heads [d] one after another read as once they are written.
  static std::vector<float> round(DType dtype, std::vector<float> x, int32_t d) {
    if (!kv_has_scales(dtype)) return x;
    for (size_t at = 0; at < x.size(); at += static_cast<size_t>(d)) {
      const HeadCodes made = HeadCodes::make(dtype, &x[at], d);
      for (size_t i = 0; i < made.codes.size(); ++i) {
        x[at + i] = HeadCodes::number(dtype, made.codes[i], made.step, made.low);
      }
    }
    return x;
  }

 private:
  uint8_t* row_at(int64_t row) const {
    return numbers_.data() + static_cast<size_t>(row) * row_bytes_;
  }
  uint32_t scale_bits(float step, float low) const {
    if (dtype_ == DType::kU4) return f32_to_bf16(step) | uint32_t{f32_to_bf16(low)} << 16;
    uint32_t bits;
    std::memcpy(&bits, &step, sizeof bits);
    return bits;
  }
  uint8_t code(int64_t row, int32_t i) const {
    if (dtype_ != DType::kU4) return row_at(row)[i];
    return row_at(row)[i / 2] >> (i % 2 * 4) & 15;
  }
  void set_code(int64_t row, int32_t i, uint8_t code) {
    uint8_t* const to = row_at(row) + (dtype_ == DType::kU4 ? i / 2 : i);
    if (dtype_ != DType::kU4) {
      *to = code;
    } else {
      *to = static_cast<uint8_t>(i % 2 == 0 ? (*to & 0xf0) | code : (*to & 0x0f) | code << 4);
    }
  }
  float number(int64_t row, int32_t i) const {
    const uint8_t* const from = row_at(row) + static_cast<size_t>(i) * dtype_size(dtype_);
    if (dtype_ == DType::kF32) {
      float value;
      std::memcpy(&value, from, sizeof value);
      return value;
    }
    uint16_t bits;
    std::memcpy(&bits, from, sizeof bits);
    return dtype_ == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
  }
  void set_number(int64_t row, int32_t i, float value) {
    uint8_t* const to = row_at(row) + static_cast<size_t>(i) * dtype_size(dtype_);
    if (dtype_ == DType::kF32) {
      std::memcpy(to, &value, sizeof value);
      return;
    }
    const uint16_t bits = dtype_ == DType::kBF16 ? f32_to_bf16(value) : f32_to_f16(value);
    std::memcpy(to, &bits, sizeof bits);
  }

  DType dtype_;
  KvLayout layout_;
  int64_t rows_;
  size_t row_bytes_;
  DeviceArray<uint8_t> numbers_;
  DeviceArray<uint32_t> scales_;
};

}  // namespace headrace::cuda
