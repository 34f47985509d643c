#pragma once

#include <cstddef>
#include <cstdint>

#include "base/checked_math.h"
#include "tensor/tensor_view.h"

namespace headrace {

/// Hands out matrices of scratch memory, one after the other.
class Carver {
 public:
  static constexpr size_t kAlignment = 256;

  /// `base` is aligned to kAlignment, or null to compute sizes only.
  explicit Carver(void* base) : base_(static_cast<char*>(base)) {}

  TensorView matrix(int64_t rows, int64_t cols, DType dtype) {
    void* data = base_ == nullptr ? nullptr : base_ + offset_;
    const size_t bytes = static_cast<size_t>(rows * cols) * dtype_size(dtype);
    offset_ += round_up(bytes, kAlignment);
    return TensorView(data, dtype, {rows, cols});
  }

  /// The same, but rows begin at multiples of 16 bytes.
  TensorView aligned_matrix(int64_t rows, int64_t cols, DType dtype) {
    const auto unit = static_cast<int64_t>(16 / dtype_size(dtype));
    return matrix(rows, round_up(cols, unit), dtype).columns(0, cols);
  }

  size_t offset() const noexcept { return offset_; }
  void move_to(size_t offset) noexcept { offset_ = offset; }

 private:
  char* base_;
  size_t offset_ = 0;
};

}  // namespace headrace
