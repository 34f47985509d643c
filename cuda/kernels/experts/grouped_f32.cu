#include "cuda/kernels/experts/grouped_kernels.cuh"
#include "cuda/kernels/linear/linear_f32.cuh"
#include "cuda/kernels/quant/quant_task.cuh"

namespace headrace::cuda {
namespace {

using namespace f32;

/// Experts' matrices of float32.
struct PlainWeights {
  const float* data;
  int64_t stride, elements;

  __device__ float at(int32_t expert, int64_t row, int64_t k) const {
    return data[expert * elements + row * stride + k];
  }
};

/// Of codes.
struct QuantWeights {
  QuantWeightView view;
  int64_t bytes;

  __device__ float at(int32_t expert, int64_t row, int64_t k) const {
    QuantWeightView own = view;
    own.data += expert * bytes;
    return own.at(row, k);
  }
};

template <class Weights>
__global__ void __launch_bounds__(kThreads)
    grouped_f32_kernel(GroupedTask<float> task, Weights weights, int64_t cols,
                       LinearOutput<float, float> out) {
  start_next();
  wait_for_previous();
  const ExpertTile tile = task.tile(blockIdx.x);
  if (tile.rows == 0) return;
  const int64_t first_feature = int64_t{blockIdx.y} * kFeatures;
  const auto token = [&](int row) { return task.token(tile, row); };
  const auto weight = [&](int row, int64_t k) {
    return weights.at(tile.expert, first_feature + row, k);
  };
  multiply_tile({tile.rows, cols}, token, weight, tile.first, first_feature,
                task.output(out, tile));
}

template <class Weights>
void run(const GroupedLinearArgs& args, const Weights& weights, Stream stream) {
  const LaunchShape shape{
      .grid = {grid_size(args.num_tiles), grid_size(args.layout.stored_rows() / kFeatures)},
      .threads = kThreads,
      .overlaps = true};
  launch("grouped_f32", grouped_f32_kernel<Weights>, shape, stream, grouped_task<float>(args),
         weights, args.layout.k, grouped_output<float>(args));
}

}  // namespace

void grouped_f32(const GroupedLinearArgs& args, Stream stream) {
  HEADRACE_CHECK(args.tile_rows == kTokens, args.tile_rows);
  if (args.quant.bits != 0) {
    const QuantLayout layout{args.layout, args.quant};
    return run(args, QuantWeights{view_of(layout, args.weight), layout.bytes()}, stream);
  }
  run(args,
      PlainWeights{static_cast<const float*>(args.weight), args.layout.stride(),
                   args.layout.elements()},
      stream);
}

}  // namespace headrace::cuda
