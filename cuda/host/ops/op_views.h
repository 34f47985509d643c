#pragma once

// Tensors and weights as launch functions take them, checked.

#include <cstdint>

#include "base/check.h"
#include "cuda/host/weights/device_weight.h"
#include "cuda/kernels/matrix.h"
#include "tensor/tensor_view.h"

namespace headrace::cuda {

inline Matrix matrix(const TensorView& x) {
  HEADRACE_CHECK(x.shape.rank() == 2 && x.row_stride >= x.cols(), x.shape.rank());
  HEADRACE_CHECK(x.data != nullptr || x.rows() == 0);
  return {x.data, x.rows(), x.cols(), x.row_stride};
}

inline void check_same(const TensorView& a, const TensorView& b) {
  HEADRACE_CHECK(a.rows() == b.rows() && a.cols() == b.cols() && a.dtype == b.dtype, a.rows(),
                 " x ", a.cols(), " and ", b.rows(), " x ", b.cols());
}

inline void check_vector(const TensorView& x, int64_t n, DType dtype) {
  HEADRACE_CHECK(x.data != nullptr && x.dtype == dtype && x.shape.elements() == n,
                 x.shape.elements(), " and ", n);
}

inline const DeviceWeight& device_weight(const PackedWeight& weight) {
  const auto* packed = dynamic_cast<const DeviceWeight*>(&weight);
  HEADRACE_CHECK(packed != nullptr, "the weight was packed by another backend");
  return *packed;
}

}  // namespace headrace::cuda
