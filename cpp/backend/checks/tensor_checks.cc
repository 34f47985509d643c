#include "backend/checks/tensor_checks.h"

#include "base/check.h"

namespace headrace {

void check_matrix(const TensorView& x) {
  HEADRACE_CHECK(x.shape.rank() == 2 && x.dtype == DType::kF32, x.shape.rank(), " ",
                 dtype_name(x.dtype));
  HEADRACE_CHECK(x.row_stride >= x.cols() && (x.data != nullptr || x.rows() == 0), x.row_stride);
}

void check_matrix(const TensorView& x, int64_t rows, int64_t cols, DType dtype) {
  HEADRACE_CHECK(x.shape.rank() == 2 && x.dtype == dtype, x.shape.rank(), " ", dtype_name(x.dtype));
  HEADRACE_CHECK(x.rows() == rows && x.cols() == cols, x.rows(), " x ", x.cols(), ", not ", rows,
                 " x ", cols);
  HEADRACE_CHECK(x.row_stride >= cols && (x.data != nullptr || rows == 0), x.row_stride);
}

void check_vector(const TensorView& x, int64_t n, DType dtype) {
  HEADRACE_CHECK(x.data != nullptr && x.dtype == dtype && x.shape.elements() == n,
                 x.shape.elements(), " and ", n);
}

}  // namespace headrace
