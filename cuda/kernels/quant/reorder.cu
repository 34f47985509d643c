#include "cuda/kernels/quant/reorder.h"

#include "cuda/kernels/launch.cuh"

namespace headrace::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void reorder_kernel(const T* x, int64_t x_stride, const int32_t* order, T* out,
                               int64_t out_stride, int64_t cols) {
  start_next();
  wait_for_previous();
  const T* from = x + blockIdx.y * x_stride;
  const int64_t column = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column < cols) out[blockIdx.y * out_stride + column] = from[order[column]];
}

}  // namespace

void reorder(const ReorderArgs& args, Stream stream) {
  HEADRACE_CHECK(
      args.x.cols == args.out.cols && args.x.rows == args.out.rows && args.x.rows <= 65535,
      args.x.rows, " x ", args.x.cols);
  if (args.x.rows == 0) return;
  with_element(args.dtype, [&](auto element) {
    using T = decltype(element);
    launch("reorder", reorder_kernel<T>,
           {.grid = {grid_size(divide_up<int64_t>(args.x.cols, kThreads)), grid_size(args.x.rows)},
            .threads = kThreads,
            .overlaps = true},
           stream, static_cast<const T*>(args.x.data), args.x.stride, args.order,
           static_cast<T*>(args.out.data), args.out.stride, args.x.cols);
  });
}

}  // namespace headrace::cuda
