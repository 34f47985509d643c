#include "cuda/kernels/rms_norm.h"

#include "cuda/kernels/norm_row.cuh"

namespace headrace::cuda {
namespace {

struct NormShape {
  int64_t cols, x_stride, delta_stride, out_stride;
  float eps;
};

/// values += delta, where there is one, as an op of its own would: rounded.
template <class T, int kSize>
__device__ inline void add_chunk(const T* delta, int64_t at, Chunk<T, kSize>& values, T* row) {
  if (delta == nullptr) return;
  const Chunk<T, kSize> more = load_chunk<T, kSize>(delta + at);
  HEADRACE_UNROLL
  for (int i = 0; i < kSize; ++i) {
    values.at[i] = from_float<T>(to_float(values.at[i]) + to_float(more.at[i]));
  }
  store_chunk(row + at, values);
}

template <class T, int kSize>
__device__ inline float add_squares(const Chunk<T, kSize>& values, float sum) {
  HEADRACE_UNROLL
  for (int i = 0; i < kSize; ++i) {
    const float value = to_float(values.at[i]);
    sum = fmaf(value, value, sum);
  }
  return sum;
}

template <class T, int kSize>
__device__ inline void scale_chunk(Chunk<T, kSize> values, float factor, const T* weight, T* to) {
  const Chunk<T, kSize> scale = load_chunk<T, kSize>(weight);
  HEADRACE_UNROLL
  for (int i = 0; i < kSize; ++i) {
    values.at[i] = from_float<T>(to_float(values.at[i]) * factor * to_float(scale.at[i]));
  }
  store_chunk(to, values);
}

/// One row a block. kSize elements a load: 16 bytes or, where rows aren't aligned, one.
template <class T, int kSize>
__global__ void __launch_bounds__(kMaxNormThreads)
    rms_norm_kernel(T* x, const T* delta, const T* weight, T* out, NormShape s) {
  __shared__ float partial[kWarp];
  start_next();
  wait_for_previous();
  T* row = x + blockIdx.x * s.x_stride;
  const T* add = delta == nullptr ? nullptr : delta + blockIdx.x * s.delta_stride;
  T* to = out + blockIdx.x * s.out_stride;
  const int64_t first = int64_t{threadIdx.x} * kSize, step = int64_t{blockDim.x} * kSize;
  Chunk<T, kSize> held[kHeldChunks];
  HEADRACE_UNROLL
  for (int h = 0; h < kHeldChunks; ++h) {
    if (first + h * step < s.cols) held[h] = load_chunk<T, kSize>(row + first + h * step);
  }
  float squares = 0.0f;
  HEADRACE_UNROLL
  for (int h = 0; h < kHeldChunks; ++h) {
    const int64_t at = first + h * step;
    if (at >= s.cols) continue;
    add_chunk(add, at, held[h], row);
    squares = add_squares(held[h], squares);
  }
  for (int64_t at = first + kHeldChunks * step; at < s.cols; at += step) {
    Chunk<T, kSize> values = load_chunk<T, kSize>(row + at);
    add_chunk(add, at, values, row);
    squares = add_squares(values, squares);
  }
  squares = block_reduce(squares, Sum{}, partial);
  const float factor = 1.0f / sqrtf(squares / static_cast<float>(s.cols) + s.eps);
  HEADRACE_UNROLL
  for (int h = 0; h < kHeldChunks; ++h) {
    const int64_t at = first + h * step;
    if (at < s.cols) scale_chunk(held[h], factor, weight + at, to + at);
  }
  for (int64_t at = first + kHeldChunks * step; at < s.cols; at += step) {
    scale_chunk(load_chunk<T, kSize>(row + at), factor, weight + at, to + at);
  }
}

template <class T, int kSize>
void run(const RmsNormArgs& args, Stream stream) {
  const LaunchShape shape{.grid = {grid_size(args.x.rows)},
                          .threads = norm_threads(args.x.cols, kSize),
                          .overlaps = true};
  const NormShape norm{args.x.cols, args.x.stride, args.delta.stride, args.out.stride, args.eps};
  launch("rms_norm", rms_norm_kernel<T, kSize>, shape, stream, static_cast<T*>(args.x.data),
         static_cast<const T*>(args.delta.data), static_cast<const T*>(args.weight),
         static_cast<T*>(args.out.data), norm);
}

}  // namespace

void rms_norm(const RmsNormArgs& args, Stream stream) {
  if (args.x.rows == 0) return;
  HEADRACE_CHECK(args.x.cols >= 1, args.x.cols);
  with_element(args.dtype, [&](auto element) {
    using T = decltype(element);
    const int64_t cols = args.x.cols;
    const auto vectors = [&](const void* data, int64_t stride) {
      return is_vectorizable(static_cast<const T*>(data), stride, cols);
    };
    // The same bits either way need the same tree: rows of a width are all vectors or all not, as
    // matrices of the engine are aligned to 256 bytes.
    if (vectors(args.x.data, args.x.stride) && vectors(args.delta.data, args.delta.stride) &&
        vectors(args.weight, 0) && vectors(args.out.data, args.out.stride)) {
      run<T, Vector<T>::kSize>(args, stream);
    } else {
      run<T, 1>(args, stream);
    }
  });
}

}  // namespace headrace::cuda
