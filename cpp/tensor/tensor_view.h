#pragma once

// TensorView: pointer + shape + dtype. Owns nothing.

#include <array>
#include <cstdint>
#include <initializer_list>

#include "base/check.h"
#include "tensor/dtype.h"

namespace headrace {

/// Up to four dimensions, outermost first. All dims are >= 0.
class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    HEADRACE_CHECK(dims.size() <= kMaxRank, "rank ", dims.size());
    for (int64_t dim : dims) dims_[static_cast<size_t>(rank_++)] = dim;
  }

  int rank() const noexcept { return rank_; }
  int64_t operator[](int i) const noexcept { return dims_[static_cast<size_t>(i)]; }
  int64_t elements() const noexcept {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[static_cast<size_t>(i)];
    return n;
  }
  bool operator==(const Shape&) const = default;

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

/// A row-major tensor in the memory of one backend. A 2-D view may have a row stride larger than
/// its width (a column slice); every other view is contiguous.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;
  int64_t row_stride = 0;  ///< elements between rows of a 2-D view; == shape[1] if contiguous

  TensorView() = default;
  TensorView(void* data_in, DType dtype_in, Shape shape_in)
      : data(data_in),
        dtype(dtype_in),
        shape(shape_in),
        row_stride(shape_in.rank() > 0 ? shape_in[shape_in.rank() - 1] : 0) {}

  int64_t rows() const noexcept { return shape[0]; }
  int64_t cols() const noexcept { return shape[1]; }

  template <class T>
  T* as() const {
    HEADRACE_CHECK(sizeof(T) == dtype_size(dtype), dtype_name(dtype));
    return static_cast<T*>(data);
  }

  /// Row `i` of a 2-D view.
  template <class T>
  T* row(int64_t i) const {
    return as<T>() + i * row_stride;
  }

  /// Columns [first, first + count) of a 2-D view, sharing its memory.
  TensorView columns(int64_t first, int64_t count) const {
    HEADRACE_CHECK(shape.rank() == 2 && first >= 0 && count >= 0 && first + count <= shape[1],
                   first, " + ", count);
    TensorView out(static_cast<char*>(data) + static_cast<size_t>(first) * dtype_size(dtype), dtype,
                   {shape[0], count});
    out.row_stride = row_stride;
    return out;
  }

  /// Rows [first, first + count) of a 2-D view.
  TensorView rows_from(int64_t first, int64_t count) const {
    HEADRACE_CHECK(shape.rank() == 2 && first >= 0 && count >= 0 && first + count <= shape[0],
                   first, " + ", count);
    TensorView out = *this;
    out.data =
        static_cast<char*>(data) + static_cast<size_t>(first * row_stride) * dtype_size(dtype);
    out.shape = {count, shape[1]};
    return out;
  }

  /// The first `count` rows of a 2-D view.
  TensorView first_rows(int64_t count) const {
    HEADRACE_CHECK(shape.rank() == 2 && count >= 0 && count <= shape[0], count);
    TensorView out = *this;
    out.shape = {count, shape[1]};
    return out;
  }
};

}  // namespace headrace
