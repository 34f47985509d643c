#pragma once

// Rows copied by index: what embed, gather_rows and scatter_rows are.

#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

/// Row i itself.
struct EveryRow {
  __device__ int64_t operator[](uint32_t i) const { return i; }
};

/// Row rows[i].
struct ChosenRows {
  const int32_t* rows;
  __device__ int64_t operator[](uint32_t i) const { return rows[i]; }
};

/// The same, or another_rows[another[i]] where there is `another` and it is >= 0; less `first`, and
/// -1 for what then isn't one of `count` rows.
struct PickedRows {
  const int32_t* rows;
  const int32_t* another = nullptr;
  const int32_t* another_rows = nullptr;
  int32_t first = 0;
  int32_t count = 0x7fffffff;

  __device__ int64_t operator[](uint32_t i) const {
    const bool picks = another != nullptr && another[i] >= 0;
    const int64_t row = int64_t{picks ? another_rows[another[i]] : rows[i]} - first;
    return row >= 0 && row < count ? row : -1;
  }
};

/// to[targets[i]] = from[sources[i]], or 0 where that is -1.
template <class T, class Sources, class Targets>
__global__ void copy_rows_kernel(const T* from, int64_t from_stride, Sources sources, T* to,
                                 int64_t to_stride, Targets targets, int64_t cols, bool vectors) {
  start_next();
  wait_for_previous();
  const int64_t source = sources[blockIdx.x];
  const T* x = from + source * from_stride;
  T* out = to + targets[blockIdx.x] * to_stride;
  if (source < 0) {
    for (int64_t i = threadIdx.x; i < cols; i += blockDim.x) out[i] = from_float<T>(0.0f);
  } else if (vectors) {
    for (int64_t i = threadIdx.x; i < cols / Vector<T>::kSize; i += blockDim.x) {
      store_vector(out + i * Vector<T>::kSize, load_vector(x + i * Vector<T>::kSize));
    }
  } else {
    for (int64_t i = threadIdx.x; i < cols; i += blockDim.x) out[i] = x[i];
  }
}

/// `out`: as many rows as are copied.
template <class Sources, class Targets>
void copy_rows(const char* name, DType dtype, const ConstMatrix& from, const Sources& sources,
               const Targets& targets, const Matrix& out, Stream stream) {
  if (out.rows == 0 || out.cols == 0) return;
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    const auto* x = static_cast<const T*>(from.data);
    auto* to = static_cast<T*>(out.data);
    const bool vectors =
        is_vectorizable(x, from.stride, out.cols) && is_vectorizable(to, out.stride, out.cols);
    const LaunchShape shape{.grid = {grid_size(out.rows)}, .threads = 128, .overlaps = true};
    launch(name, copy_rows_kernel<T, Sources, Targets>, shape, stream, x, from.stride, sources, to,
           out.stride, targets, out.cols, vectors);
  });
}

}  // namespace headrace::cuda
