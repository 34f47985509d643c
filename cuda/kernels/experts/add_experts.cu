#include "cuda/kernels/experts/add_experts.h"

#include "backend/contract/experts_op.h"
#include "cuda/kernels/launch.cuh"

namespace headrace::cuda {
namespace {

constexpr unsigned kThreads = 128;

template <class T>
struct AddTask {
  const T* pairs;
  int64_t pairs_stride;
  const int32_t* places;
  const float* weights;
  int64_t weights_stride;
  int top_k;
  T* out;
  int64_t out_stride, cols;
};

/// A block has a row, a thread kSize neighbouring columns.
template <class T, int kSize>
__global__ void __launch_bounds__(kThreads) add_experts_kernel(AddTask<T> task) {
  const int64_t row = blockIdx.x;
  const int64_t column = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kSize;
  start_next();
  wait_for_previous();
  if (column >= task.cols) return;
  const int32_t* places = task.places + row * task.top_k;
  const float* weights = task.weights + row * task.weights_stride;
  float sums[kSize] = {};
  HEADRACE_UNROLL_BY_8
  for (int i = 0; i < task.top_k; ++i) {
    if (places[i] < 0) continue;
    const T* from = task.pairs + places[i] * task.pairs_stride + column;
    if constexpr (kSize == 1) {
      sums[0] = fmaf(weights[i], to_float(*from), sums[0]);
    } else {
      const Vector<T> values = load_vector(from);
      HEADRACE_UNROLL
      for (int j = 0; j < kSize; ++j) sums[j] = fmaf(weights[i], to_float(values.at[j]), sums[j]);
    }
  }
  T* to = task.out + row * task.out_stride + column;
  if constexpr (kSize == 1) {
    *to = from_float<T>(sums[0]);
  } else {
    Vector<T> rounded;
    HEADRACE_UNROLL
    for (int j = 0; j < kSize; ++j) rounded.at[j] = from_float<T>(sums[j]);
    store_vector(to, rounded);
  }
}

template <class T, int kSize>
void run(const AddTask<T>& task, int64_t rows, Stream stream) {
  const LaunchShape shape{
      .grid = {grid_size(rows), grid_size(divide_up<int64_t>(task.cols, kThreads * kSize))},
      .threads = kThreads,
      .overlaps = true};
  launch("add_experts", add_experts_kernel<T, kSize>, shape, stream, task);
}

}  // namespace

void add_experts(const AddExpertsArgs& args, Stream stream) {
  if (args.out.rows == 0) return;
  HEADRACE_CHECK(args.pairs.cols == args.out.cols && args.out.cols >= 1, args.pairs.cols, " to ",
                 args.out.cols);
  HEADRACE_CHECK(args.top_k >= 1 && args.top_k <= kMaxTopExperts, args.top_k);
  with_element(args.dtype, [&](auto element) {
    using T = decltype(element);
    const AddTask<T> task{.pairs = static_cast<const T*>(args.pairs.data),
                          .pairs_stride = args.pairs.stride,
                          .places = args.places,
                          .weights = args.weights,
                          .weights_stride = args.weights_stride,
                          .top_k = static_cast<int>(args.top_k),
                          .out = static_cast<T*>(args.out.data),
                          .out_stride = args.out.stride,
                          .cols = args.out.cols};
    if (is_vectorizable(task.pairs, task.pairs_stride, task.cols) &&
        is_vectorizable(task.out, task.out_stride, task.cols)) {
      run<T, Vector<T>::kSize>(task, args.out.rows, stream);
    } else {
      run<T, 1>(task, args.out.rows, stream);
    }
  });
}

}  // namespace headrace::cuda
