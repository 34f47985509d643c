#include "cuda/kernels/rms_norm.h"

#include "cuda/device/reduce.cuh"
#include "cuda/kernels/launch.cuh"

namespace headrace::cuda {
namespace {

/// Elements of a row that a thread holds between its two passes; longer rows are read again.
constexpr int kHeldVectors = 4;

/// Threads for rows of `cols`: a property of the width alone, as the sum's tree hangs on it.
unsigned norm_threads(int64_t cols, int vector) {
  const int64_t vectors = divide_up<int64_t>(cols, vector);
  return static_cast<unsigned>(vectors >= 512 ? 512 : divide_up<int64_t>(vectors, kWarp) * kWarp);
}

template <class T, int kSize>
struct Chunk {
  T at[kSize];
};

template <class T, int kSize>
__device__ inline Chunk<T, kSize> load_chunk(const T* from) {
  if constexpr (kSize == 1) {
    return {{*from}};
  } else {
    const Vector<T> vector = load_vector(from);
    Chunk<T, kSize> out;
    for (int i = 0; i < kSize; ++i) out.at[i] = vector.at[i];
    return out;
  }
}

template <class T, int kSize>
__device__ inline void store_chunk(T* to, const Chunk<T, kSize>& chunk) {
  if constexpr (kSize == 1) {
    *to = chunk.at[0];
  } else {
    Vector<T> vector;
    for (int i = 0; i < kSize; ++i) vector.at[i] = chunk.at[i];
    store_vector(to, vector);
  }
}

struct NormShape {
  int64_t cols, x_stride, delta_stride, out_stride;
  float eps;
};

/// One row a block. kSize elements a load: 16 bytes or, where rows aren't aligned, one.
template <class T, int kSize>
__global__ void rms_norm_kernel(T* x, const T* delta, const T* weight, T* out, NormShape s) {
  __shared__ float partial[kWarp];
  T* row = x + blockIdx.x * s.x_stride;
  const T* add = delta == nullptr ? nullptr : delta + blockIdx.x * s.delta_stride;
  T* to = out + blockIdx.x * s.out_stride;
  const int64_t chunks = s.cols / kSize;
  Chunk<T, kSize> held[kHeldVectors] = {};

  float squares = 0.0f;
  int place = 0;
  for (int64_t c = threadIdx.x; c < chunks; c += blockDim.x, ++place) {
    Chunk<T, kSize> values = load_chunk<T, kSize>(row + c * kSize);
    if (add != nullptr) {
      const Chunk<T, kSize> more = load_chunk<T, kSize>(add + c * kSize);
      HEADRACE_UNROLL
      for (int i = 0; i < kSize; ++i) {
        values.at[i] = from_float<T>(to_float(values.at[i]) + to_float(more.at[i]));
      }
      store_chunk(row + c * kSize, values);
    }
    HEADRACE_UNROLL
    for (int i = 0; i < kSize; ++i) {
      const float value = to_float(values.at[i]);
      squares = fmaf(value, value, squares);
    }
    HEADRACE_UNROLL
    for (int h = 0; h < kHeldVectors; ++h) {
      if (h == place) held[h] = values;
    }
  }
  squares = block_reduce(squares, Sum{}, partial);
  const float factor = 1.0f / sqrtf(squares / static_cast<float>(s.cols) + s.eps);

  place = 0;
  for (int64_t c = threadIdx.x; c < chunks; c += blockDim.x, ++place) {
    Chunk<T, kSize> values = held[0];
    HEADRACE_UNROLL
    for (int h = 1; h < kHeldVectors; ++h) {
      if (h == place) values = held[h];
    }
    if (place >= kHeldVectors) values = load_chunk<T, kSize>(row + c * kSize);
    const Chunk<T, kSize> scale = load_chunk<T, kSize>(weight + c * kSize);
    HEADRACE_UNROLL
    for (int i = 0; i < kSize; ++i) {
      values.at[i] = from_float<T>(to_float(values.at[i]) * factor * to_float(scale.at[i]));
    }
    store_chunk(to + c * kSize, values);
  }
}

template <class T, int kSize>
void run(const RmsNormArgs& args, Stream stream) {
  const LaunchShape shape{.grid = {grid_size(args.x.rows)},
                          .threads = norm_threads(args.x.cols, kSize)};
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
