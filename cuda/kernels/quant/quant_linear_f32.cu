#include "cuda/kernels/linear/linear_epilogue.cuh"
#include "cuda/kernels/quant/quant_task.cuh"

namespace headrace::cuda {
namespace {

constexpr int kTokens = 32, kFeatures = 64, kDepth = 16, kThreads = 256;
constexpr int kTokensEach = 4, kFeaturesEach = 2;
constexpr int kPadding = 1;

struct F32Task {
  const float* x;
  int64_t x_stride, rows, k;
  QuantWeightView weight;
};

/// A thread has 4 rows x 2 features; each sum is one chain of fused multiply-adds over ascending k.
/// A scale times a code less its zero is exact in float32.
__global__ void __launch_bounds__(kThreads, 4)
    quant_linear_f32_kernel(F32Task task, LinearOutput<float, float> out) {
  __shared__ float x_tile[kDepth][kTokens + kPadding];
  __shared__ float weight_tile[kDepth][kFeatures + kPadding];
  __shared__ float4 sums_memory[kTokens * kFeatures / 4];
  auto* sums_tile = reinterpret_cast<float*>(sums_memory);
  const int thread = static_cast<int>(threadIdx.x);
  const int column = thread % (kFeatures / kFeaturesEach);
  const int line = thread / (kFeatures / kFeaturesEach);
  const int64_t first_row = int64_t{blockIdx.y} * kTokens;
  const int64_t first_feature = int64_t{blockIdx.x} * kFeatures;
  float sums[kTokensEach][kFeaturesEach] = {};
  start_next();
  wait_for_previous();
  for (int64_t k0 = 0; k0 < task.k; k0 += kDepth) {
    for (int i = thread; i < kTokens * kDepth; i += kThreads) {
      const int64_t row = first_row + i / kDepth, k = k0 + i % kDepth;
      const bool exists = row < task.rows && k < task.k;
      x_tile[i % kDepth][i / kDepth] = exists ? task.x[row * task.x_stride + k] : 0.0f;
    }
    for (int i = thread; i < kFeatures * kDepth; i += kThreads) {
      weight_tile[i % kDepth][i / kDepth] =
          task.weight.at(first_feature + i / kDepth, k0 + i % kDepth);
    }
    __syncthreads();
    HEADRACE_UNROLL
    for (int k = 0; k < kDepth; ++k) {
      HEADRACE_UNROLL
      for (int i = 0; i < kTokensEach * kFeaturesEach; ++i) {
        const int t = i / kFeaturesEach, f = i % kFeaturesEach;
        sums[t][f] = fmaf(x_tile[k][line * kTokensEach + t],
                          weight_tile[k][column * kFeaturesEach + f], sums[t][f]);
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < kTokensEach * kFeaturesEach; ++i) {
    const int t = i / kFeaturesEach, f = i % kFeaturesEach;
    sums_tile[(line * kTokensEach + t) * kFeatures + column * kFeaturesEach + f] = sums[t][f];
  }
  __syncthreads();
  write_sums<kFeatures>(sums_tile, kFeatures,
                        static_cast<int>(least<int64_t>(kTokens, task.rows - first_row)), first_row,
                        first_feature, out, thread, kThreads);
}

}  // namespace

void quant_linear_f32(const QuantLinearArgs& args, Stream stream) {
  constexpr int64_t kMaxRows = int64_t{65535} * kTokens;
  static_assert(kFeatures == kWeightRowUnit && kQuantUnit % kDepth == 0);
  const LinearArgs& linear = args.linear;
  HEADRACE_CHECK(linear.x.rows <= kMaxRows, linear.x.rows);
  const F32Task task{static_cast<const float*>(linear.x.data), linear.x.stride, linear.x.rows,
                     linear.x.cols, view_of(layout_of(args), linear.weight)};
  const LaunchShape shape{.grid = {grid_size(linear.layout.stored_rows() / kFeatures),
                                   grid_size(divide_up<int64_t>(linear.x.rows, kTokens))},
                          .threads = kThreads,
                          .overlaps = true};
  launch("quant_linear_f32", quant_linear_f32_kernel, shape, stream, task,
         linear_output<float, float>(linear));
}

}  // namespace headrace::cuda
