#pragma once

// Ops that look at one element of a row at a time, with rows moved in pieces of 16 bytes where they
// are aligned.

#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

/// to[i] = f(a[i], b[i]); `b` may be null, `to` may be either.
template <class T, class F>
__global__ void __launch_bounds__(256)
    elementwise_kernel(T* to, int64_t to_stride, const T* a, int64_t a_stride, const T* b,
                       int64_t b_stride, int64_t cols, bool vectors, F f) {
  start_next();
  wait_for_previous();
  T* out = to + blockIdx.y * to_stride;
  const T* x = a + blockIdx.y * a_stride;
  const T* y = b == nullptr ? nullptr : b + blockIdx.y * b_stride;
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (!vectors) {
    if (i < cols) out[i] = from_float<T>(f(to_float(x[i]), y == nullptr ? 0.0f : to_float(y[i])));
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
  store_vector(out + i * kSize, values);
}

/// to = f(a, b); `b` may have no data. f: (float, float) -> float on the device.
template <class F>
void elementwise(const char* name, DType dtype, const Matrix& to, const ConstMatrix& a,
                 const ConstMatrix& b, F f, Stream stream) {
  constexpr int64_t kMaxGridRows = 65535;
  constexpr unsigned kThreads = 256;
  if (to.rows == 0 || to.cols == 0) return;
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    auto* out = static_cast<T*>(to.data);
    const auto* x = static_cast<const T*>(a.data);
    const auto* y = static_cast<const T*>(b.data);
    const bool vectors = is_vectorizable(out, to.stride, to.cols) &&
                         is_vectorizable(x, a.stride, to.cols) &&
                         is_vectorizable(y, b.stride, to.cols);
    const int64_t work = vectors ? to.cols / Vector<T>::kSize : to.cols;
    for (int64_t row = 0; row < to.rows; row += kMaxGridRows) {
      const LaunchShape shape{.grid = {grid_size(divide_up<int64_t>(work, kThreads)),
                                       grid_size(least(to.rows - row, kMaxGridRows))},
                              .threads = kThreads,
                              .overlaps = true};
      launch(name, elementwise_kernel<T, F>, shape, stream, out + row * to.stride, to.stride,
             x + row * a.stride, a.stride, y == nullptr ? y : y + row * b.stride, b.stride, to.cols,
             vectors, f);
    }
  });
}

/// to = f(to, from); `from` may have no data.
template <class F>
void elementwise(const char* name, DType dtype, const Matrix& to, const ConstMatrix& from, F f,
                 Stream stream) {
  elementwise(name, dtype, to, to, from, f, stream);
}

}  // namespace headrace::cuda
