#include "cuda/kernels/rows/layer_norm.h"

#include "cuda/kernels/rows/norm_row.cuh"

namespace headrace::cuda {
namespace {

struct NormShape {
  int64_t cols, x_stride, out_stride;
  float eps;
};

template <class T, int kSize>
__device__ inline float add_values(const Chunk<T, kSize>& values, float sum) {
  HEADRACE_UNROLL
  for (int i = 0; i < kSize; ++i) sum += to_float(values.at[i]);
  return sum;
}

template <class T, int kSize>
__device__ inline float add_distances(const Chunk<T, kSize>& values, float mean, float sum) {
  HEADRACE_UNROLL
  for (int i = 0; i < kSize; ++i) {
    const float distance = to_float(values.at[i]) - mean;
    sum = fmaf(distance, distance, sum);
  }
  return sum;
}

/// Null: there is none.
template <class T>
__device__ inline const T* bias_at(const T* bias, int64_t at) {
  return bias == nullptr ? nullptr : bias + at;
}

template <class T, int kSize>
__device__ inline void shift_chunk(Chunk<T, kSize> values, float mean, float factor,
                                   const T* weight, const T* bias, T* to) {
  const Chunk<T, kSize> scale = load_chunk<T, kSize>(weight);
  Chunk<T, kSize> shift = {};
  if (bias != nullptr) shift = load_chunk<T, kSize>(bias);
  HEADRACE_UNROLL
  for (int i = 0; i < kSize; ++i) {
    const float normed = (to_float(values.at[i]) - mean) * factor;
    values.at[i] = from_float<T>(fmaf(normed, to_float(scale.at[i]), to_float(shift.at[i])));
  }
  store_chunk(to, values);
}

/// One row a block. kSize elements a load: 16 bytes or, where rows aren't aligned, one. A thread
/// holds kHeldChunks chunks of the row; those behind are read for each of the three passes.
template <class T, int kSize>
__global__ void __launch_bounds__(kMaxNormThreads)
    layer_norm_kernel(const T* x, const T* weight, const T* bias, T* out, NormShape s) {
  __shared__ float partial[kWarp];
  start_next();
  wait_for_previous();
  const T* row = x + blockIdx.x * s.x_stride;
  T* to = out + blockIdx.x * s.out_stride;
  const int64_t first = int64_t{threadIdx.x} * kSize, step = int64_t{blockDim.x} * kSize;
  const int64_t behind = first + kHeldChunks * step;
  Chunk<T, kSize> held[kHeldChunks];
  float sum = 0.0f;
  HEADRACE_UNROLL
  for (int h = 0; h < kHeldChunks; ++h) {
    if (first + h * step < s.cols) held[h] = load_chunk<T, kSize>(row + first + h * step);
  }
  HEADRACE_UNROLL
  for (int h = 0; h < kHeldChunks; ++h) {
    if (first + h * step < s.cols) sum = add_values(held[h], sum);
  }
  for (int64_t at = behind; at < s.cols; at += step) {
    sum = add_values(load_chunk<T, kSize>(row + at), sum);
  }
  const auto cols = static_cast<float>(s.cols);
  const float mean = block_reduce(sum, Sum{}, partial) / cols;
  float squares = 0.0f;
  HEADRACE_UNROLL
  for (int h = 0; h < kHeldChunks; ++h) {
    if (first + h * step < s.cols) squares = add_distances(held[h], mean, squares);
  }
  for (int64_t at = behind; at < s.cols; at += step) {
    squares = add_distances(load_chunk<T, kSize>(row + at), mean, squares);
  }
  squares = block_reduce(squares, Sum{}, partial);
  const float factor = 1.0f / sqrtf(squares / cols + s.eps);
  HEADRACE_UNROLL
  for (int h = 0; h < kHeldChunks; ++h) {
    const int64_t at = first + h * step;
    if (at < s.cols) shift_chunk(held[h], mean, factor, weight + at, bias_at(bias, at), to + at);
  }
  for (int64_t at = behind; at < s.cols; at += step) {
    shift_chunk(load_chunk<T, kSize>(row + at), mean, factor, weight + at, bias_at(bias, at),
                to + at);
  }
}

template <class T, int kSize>
void run(const LayerNormArgs& args, Stream stream) {
  const LaunchShape shape{.grid = {grid_size(args.x.rows)},
                          .threads = norm_threads(args.x.cols, kSize),
                          .overlaps = true};
  launch("layer_norm", layer_norm_kernel<T, kSize>, shape, stream,
         static_cast<const T*>(args.x.data), static_cast<const T*>(args.weight),
         static_cast<const T*>(args.bias), static_cast<T*>(args.out.data),
         NormShape{args.x.cols, args.x.stride, args.out.stride, args.eps});
}

}  // namespace

void layer_norm(const LayerNormArgs& args, Stream stream) {
  if (args.x.rows == 0) return;
  const int64_t cols = args.x.cols;
  HEADRACE_CHECK(cols >= 1 && args.out.rows == args.x.rows && args.out.cols == cols, cols);
  with_element(args.dtype, [&](auto element) {
    using T = decltype(element);
    const auto vectors = [&](const void* data, int64_t stride) {
      return is_vectorizable(static_cast<const T*>(data), stride, cols);
    };
    // The tree hangs on it: see rms_norm.
    if (vectors(args.x.data, args.x.stride) && vectors(args.weight, 0) && vectors(args.bias, 0) &&
        vectors(args.out.data, args.out.stride)) {
      run<T, Vector<T>::kSize>(args, stream);
    } else {
      run<T, 1>(args, stream);
    }
  });
}

}  // namespace headrace::cuda
