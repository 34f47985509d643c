#pragma once

// Ops that look at one element of a row at a time, with rows moved in pieces of 16 bytes where they
// are aligned.

#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

/// to[i] = f(to[i], from[i]); `from` may be null.
template <class T, class F>
__global__ void __launch_bounds__(256)
    elementwise_kernel(T* to, int64_t to_stride, const T* from, int64_t from_stride, int64_t cols,
                       bool vectors, F f) {
  start_next();
  wait_for_previous();
  T* x = to + blockIdx.y * to_stride;
  const T* y = from == nullptr ? nullptr : from + blockIdx.y * from_stride;
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (!vectors) {
    if (i < cols) x[i] = from_float<T>(f(to_float(x[i]), y == nullptr ? 0.0f : to_float(y[i])));
    return;
  }
  constexpr int kSize = Vector<T>::kSize;
  if (i >= cols / kSize) return;
  Vector<T> values = load_vector(x + i * kSize);
  Vector<T> others = values;
  if (y != nullptr) others = load_vector(y + i * kSize);
  HEADRACE_UNROLL
  for (int j = 0; j < kSize; ++j) {
    values.at[j] = from_float<T>(f(to_float(values.at[j]), to_float(others.at[j])));
  }
  store_vector(x + i * kSize, values);
}

/// `from` may have no data. f: (float, float) -> float on the device.
template <class F>
void elementwise(const char* name, DType dtype, const Matrix& to, const ConstMatrix& from, F f,
                 Stream stream) {
  constexpr int64_t kMaxGridRows = 65535;
  constexpr unsigned kThreads = 256;
  if (to.rows == 0 || to.cols == 0) return;
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    auto* x = static_cast<T*>(to.data);
    const auto* y = static_cast<const T*>(from.data);
    const bool vectors =
        is_vectorizable(x, to.stride, to.cols) && is_vectorizable(y, from.stride, to.cols);
    const int64_t work = vectors ? to.cols / Vector<T>::kSize : to.cols;
    for (int64_t row = 0; row < to.rows; row += kMaxGridRows) {
      const LaunchShape shape{.grid = {grid_size(divide_up<int64_t>(work, kThreads)),
                                       grid_size(least(to.rows - row, kMaxGridRows))},
                              .threads = kThreads,
                              .overlaps = true};
      launch(name, elementwise_kernel<T, F>, shape, stream, x + row * to.stride, to.stride,
             y == nullptr ? y : y + row * from.stride, from.stride, to.cols, vectors, f);
    }
  });
}

}  // namespace headrace::cuda
