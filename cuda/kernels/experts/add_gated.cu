#include "cuda/kernels/experts/add_gated.h"

#include "cuda/device/reduce.cuh"
#include "cuda/kernels/launch.cuh"

namespace headrace::cuda {
namespace {

constexpr int kThreads = 128;

template <class T>
struct AddGatedTask {
  const T* delta;
  int64_t delta_stride;
  const T* gate;
  const T* x;
  int64_t x_stride, hidden;
  T* out;
  int64_t out_stride, cols;
};

/// A block has a row.
template <class T>
__global__ void __launch_bounds__(kThreads) add_gated_kernel(AddGatedTask<T> task) {
  __shared__ float partial[kThreads / kWarp];
  const int64_t row = blockIdx.x;
  start_next();
  wait_for_previous();
  const T* x = task.x + row * task.x_stride;
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < task.hidden; i += kThreads) {
    sum = fmaf(to_float(x[i]), to_float(task.gate[i]), sum);
  }
  sum = block_reduce(sum, Sum{}, partial);
  const float share = 1.0f / (1.0f + expf(-sum));
  const T* delta = task.delta + row * task.delta_stride;
  T* out = task.out + row * task.out_stride;
  for (int64_t i = threadIdx.x; i < task.cols; i += kThreads) {
    out[i] = from_float<T>(fmaf(share, to_float(delta[i]), to_float(out[i])));
  }
}

}  // namespace

void add_gated(const AddGatedArgs& args, Stream stream) {
  if (args.out.rows == 0) return;
  HEADRACE_CHECK(args.delta.cols == args.out.cols, args.delta.cols, " to ", args.out.cols);
  with_element(args.dtype, [&](auto element) {
    using T = decltype(element);
    const AddGatedTask<T> task{.delta = static_cast<const T*>(args.delta.data),
                               .delta_stride = args.delta.stride,
                               .gate = static_cast<const T*>(args.gate),
                               .x = static_cast<const T*>(args.x.data),
                               .x_stride = args.x.stride,
                               .hidden = args.x.cols,
                               .out = static_cast<T*>(args.out.data),
                               .out_stride = args.out.stride,
                               .cols = args.out.cols};
    const LaunchShape shape{
        .grid = {grid_size(args.out.rows)}, .threads = kThreads, .overlaps = true};
    launch("add_gated", add_gated_kernel<T>, shape, stream, task);
  });
}

}  // namespace headrace::cuda
