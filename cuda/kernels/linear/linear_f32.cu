#include "cuda/kernels/linear/linear_f32.cuh"

#include "cuda/kernels/linear/linear_kernels.h"

namespace headrace::cuda {
namespace {

using namespace f32;

struct F32Task {
  const float* x;
  int64_t x_stride, rows;
  const float* weight;
  int64_t weight_stride, k;
};

__global__ void __launch_bounds__(kThreads)
    linear_f32_kernel(F32Task task, LinearOutput<float, float> out) {
  const int64_t first_row = int64_t{blockIdx.y} * kTokens;
  const int64_t first_feature = int64_t{blockIdx.x} * kFeatures;
  const Product product{static_cast<int>(least<int64_t>(kTokens, task.rows - first_row)), task.k};
  const float* features = task.weight + first_feature * task.weight_stride;
  start_next();
  wait_for_previous();
  const auto token = [&](int row) { return task.x + (first_row + row) * task.x_stride; };
  const auto weight = [&](int row, int64_t k) { return features[row * task.weight_stride + k]; };
  multiply_tile(product, token, weight, first_row, first_feature, out);
}

}  // namespace

void linear_f32(const LinearArgs& args, Stream stream) {
  constexpr int64_t kMaxRows = int64_t{65535} * kTokens;
  HEADRACE_CHECK(args.x.rows <= kMaxRows, args.x.rows);
  const F32Task task{static_cast<const float*>(args.x.data), args.x.stride,        args.x.rows,
                     static_cast<const float*>(args.weight), args.layout.stride(), args.layout.k};
  const LaunchShape shape{.grid = {grid_size(args.layout.stored_rows() / kFeatures),
                                   grid_size(divide_up<int64_t>(args.x.rows, kTokens))},
                          .threads = kThreads,
                          .overlaps = true};
  launch("linear_f32", linear_f32_kernel, shape, stream, task, linear_output<float, float>(args));
}

}  // namespace headrace::cuda
