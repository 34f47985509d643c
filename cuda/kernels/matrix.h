#pragma once

// A row-major matrix in device memory, as launch functions take it.

#include <cstdint>

#include "tensor/dtype.h"

namespace headrace::cuda {

struct Matrix {
  void* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  ///< elements between rows: >= cols
};

struct ConstMatrix {
  const void* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  ConstMatrix() = default;
  ConstMatrix(const void* d, int64_t r, int64_t c, int64_t s)
      : data(d), rows(r), cols(c), stride(s) {}
  ConstMatrix(const Matrix& m) : ConstMatrix(m.data, m.rows, m.cols, m.stride) {}  // NOLINT
};

}  // namespace headrace::cuda
