#pragma once

// Matrices in a backend's memory, of any dtype, and random numbers to fill them.

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "backend/contract/backend.h"
#include "backend/host/weight_source.h"

namespace headrace {

inline std::vector<float> random_values(size_t count, uint32_t seed, DType dtype) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(count);
  for (float& x : out) x = round_to(dtype, normal(random));
  return out;
}

/// A matrix in a backend's memory, as `dtype`.
class Uploaded {
 public:
  Uploaded(Backend& backend, DType dtype, int64_t rows, int64_t cols,
           const std::vector<float>& values = {})
      : backend_(backend),
        buffer_(backend.allocate(static_cast<size_t>(rows * cols) * dtype_size(dtype))),
        view_(buffer_.data, dtype, {rows, cols}) {
    if (!values.empty()) write(values);
  }

  /// The matrix's first numbers.
  void write(const std::vector<float>& values) const {
    std::vector<uint16_t> half(values.size());
    const void* from = values.data();
    if (view_.dtype != DType::kF32) {
      std::transform(values.begin(), values.end(), half.begin(),
                     view_.dtype == DType::kBF16 ? f32_to_bf16 : f32_to_f16);
      from = half.data();
    }
    backend_.upload(from, buffer_.data, values.size() * dtype_size(view_.dtype));
  }

  const TensorView& view() const { return view_; }
  TensorView vector() const { return TensorView(buffer_.data, view_.dtype, {view_.cols()}); }

  std::vector<float> read() const {
    std::vector<float> out(static_cast<size_t>(view_.rows() * view_.cols()));
    if (view_.dtype == DType::kF32) {
      backend_.read_back(buffer_.data, out.data(), out.size() * sizeof(float));
      return out;
    }
    std::vector<uint16_t> half(out.size());
    backend_.read_back(buffer_.data, half.data(), half.size() * sizeof(uint16_t));
    std::transform(half.begin(), half.end(), out.begin(),
                   view_.dtype == DType::kBF16 ? bf16_to_f32 : f16_to_f32);
    return out;
  }

 private:
  Backend& backend_;
  Backend::Buffer buffer_;
  TensorView view_;
};

}  // namespace headrace
