#include "cuda/kernels/experts/grouped_kernels.cuh"
#include "cuda/kernels/linear_f32.cuh"

namespace headrace::cuda {
namespace {

using namespace f32;

__global__ void __launch_bounds__(kThreads)
    grouped_f32_kernel(GroupedTask<float> task, const float* weight, WeightLayout layout,
                       LinearOutput<float, float> out) {
  start_next();
  wait_for_previous();
  const ExpertTile tile = task.tiles[blockIdx.x];
  if (tile.rows == 0) return;
  const int64_t first_feature = int64_t{blockIdx.y} * kFeatures;
  const int64_t stride = layout.stride();
  const Product product{tile.rows,
                        weight + tile.expert * task.expert_elements + first_feature * stride,
                        stride, layout.k};
  const auto token = [&](int row) { return task.token(tile.first + row); };
  multiply_tile(product, token, tile.first, first_feature, out);
}

}  // namespace

void grouped_f32(const GroupedLinearArgs& args, Stream stream) {
  HEADRACE_CHECK(args.tile_rows == kTokens, args.tile_rows);
  const LaunchShape shape{
      .grid = {grid_size(args.num_tiles), grid_size(args.layout.stored_rows() / kFeatures)},
      .threads = kThreads,
      .overlaps = true};
  launch("grouped_f32", grouped_f32_kernel, shape, stream, grouped_task<float>(args),
         static_cast<const float*>(args.weight), args.layout, grouped_output<float>(args));
}

}  // namespace headrace::cuda
