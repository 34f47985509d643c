#include "cuda/kernels/rows/rms_norm.h"

#include "cuda/kernels/rows/rms_norm_row.cuh"

namespace headrace::cuda {
namespace {

struct NormShape {
  int64_t cols, x_stride, delta_stride, out_stride;
  float eps;
};

/// One row a block.
template <class T, int kSize, class W, class Codes>
__global__ void __launch_bounds__(kMaxNormThreads)
    rms_norm_kernel(T* x, const T* delta, NormWeight<W> weight, T* out, NormShape s, Codes codes) {
  __shared__ float partial[kWarp];
  start_next();
  wait_for_previous();
  const DeltaRow<T> add{delta == nullptr ? nullptr : delta + blockIdx.x * s.delta_stride};
  rms_norm_row<T, kSize>(x + blockIdx.x * s.x_stride, add, weight, out + blockIdx.x * s.out_stride,
                         s.cols, s.eps, partial, codes);
}

template <class T, int kSize, class Codes>
void run(const RmsNormArgs& args, const Codes& codes, Stream stream) {
  const LaunchShape shape{.grid = {grid_size(args.x.rows)},
                          .threads = norm_threads(args.x.cols, kSize),
                          .overlaps = true};
  const NormShape norm{args.x.cols, args.x.stride, args.delta.stride, args.out.stride, args.eps};
  with_norm_weight<T>(args, [&](const auto& weight) {
    using W = std::decay_t<decltype(weight)>::Element;
    launch("rms_norm", rms_norm_kernel<T, kSize, W, Codes>, shape, stream,
           static_cast<T*>(args.x.data), static_cast<const T*>(args.delta.data), weight,
           static_cast<T*>(args.out.data), norm, codes);
  });
}

/// Whether rows are whole vectors. The same bits either way need the same tree: rows of a width are
/// all vectors or all not, as matrices of the engine are aligned to 256 bytes.
template <class T>
bool has_vectors(const RmsNormArgs& args) {
  const auto vectors = [&](const void* data, int64_t stride) {
    return is_vectorizable(static_cast<const T*>(data), stride, args.x.cols);
  };
  return vectors(args.x.data, args.x.stride) && vectors(args.delta.data, args.delta.stride) &&
         vectors(args.weight, 0) && vectors(args.out.data, args.out.stride);
}

}  // namespace

bool norm_can_round(const RmsNormArgs& args) {
  return with_element(args.dtype,
                      [&](auto element) { return has_vectors<decltype(element)>(args); });
}

void rms_norm(const RmsNormArgs& args, Stream stream) {
  if (args.x.rows == 0) return;
  HEADRACE_CHECK(args.x.cols >= 1, args.x.cols);
  with_element(args.dtype, [&](auto element) {
    using T = decltype(element);
    const bool vectors = has_vectors<T>(args);
    HEADRACE_CHECK(args.rounded.data == nullptr || vectors);
    if (!vectors) return run<T, 1>(args, NoCodes{}, stream);
    with_norm_codes(args,
                    [&](const auto& codes) { run<T, Vector<T>::kSize>(args, codes, stream); });
  });
}

}  // namespace headrace::cuda
