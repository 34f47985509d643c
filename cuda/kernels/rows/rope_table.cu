#include "cuda/kernels/rows/rope_table.h"

#include "cuda/kernels/launch.cuh"

namespace headrace::cuda {
namespace {

__global__ void rope_table_kernel(RopeAngles angles, const int32_t* positions,
                                  const int32_t* rope_lens, const int32_t* axis_positions,
                                  const uint8_t* axes, float* out, int64_t stride) {
  start_next();
  wait_for_previous();
  const int32_t pairs = angles.rotary_dim / 2;
  const int64_t row = blockIdx.x;
  float* to = out + row * stride;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < pairs;
       i += static_cast<int32_t>(blockDim.x)) {
    const int32_t position =
        axes == nullptr ? positions[row] : axis_positions[axes[i] * int64_t{gridDim.x} + row];
    const RopePair pair = rope_angle(angles, i, position, rope_lens[row]);
    to[i] = pair.cosine;
    to[pairs + i] = pair.sine;
  }
}

}  // namespace

void rope_table(const RopeTableArgs& args, Stream stream) {
  const RopeAngles& a = args.angles;
  HEADRACE_CHECK(a.rotary_dim >= 0 && a.rotary_dim % 2 == 0, a.rotary_dim);
  HEADRACE_CHECK((args.axes == nullptr) == (args.axis_positions == nullptr));
  if (args.rows == 0 || a.rotary_dim == 0) return;
  const LaunchShape shape{.grid = {grid_size(args.rows)}, .threads = 64, .overlaps = true};
  launch("rope_table", rope_table_kernel, shape, stream, a, args.positions, args.rope_lens,
         args.axis_positions, args.axes, args.out, args.out_stride);
}

}  // namespace headrace::cuda
