#include "cuda/kernels/experts/grouped_kernels.cuh"
#include "cuda/kernels/linear/linear_skinny.cuh"

namespace headrace::cuda {
namespace {

using namespace skinny;

/// A tile's tokens, wherever they lie.
template <class T, int kTokens>
struct PairTokens {
  static constexpr int kOwn = kTokens * kChunks / kWarp;

  const GroupedTask<T>& task;
  const ExpertTile& tile;
  int rows;
  bool vectors;
  const T* own[kOwn];  // of the rows whose chunks this lane copies

  __device__ PairTokens(const GroupedTask<T>& of, const ExpertTile& own_tile)
      : task(of), tile(own_tile), rows(own_tile.rows), vectors(of.x_vectors) {
    HEADRACE_UNROLL
    for (int i = 0; i < kOwn; ++i) {
      const int row = i * (kWarp / kChunks) + lane_id() / kChunks;
      own[i] = at(least(row, rows - 1));
    }
  }
  __device__ const T* at(int row) const { return task.token(tile, row); }
  __device__ const T* of_lane(int i, int) const { return own[i]; }
};

/// Blocks that run together have the same features of different experts.
template <class T, int kTokenTiles, int kWarps, int kStages>
__global__ void __launch_bounds__(kWarps* kWarp)
    grouped_skinny_kernel(GroupedTask<T> task, Weights<T> weights, LinearOutput<T, T> out) {
  using Tokens = PairTokens<T, 8 * kTokenTiles>;
  using Ring = WarpRing<T, Tokens, kTokenTiles, kStages>;
  start_next();
  wait_for_previous();
  const ExpertTile tile = task.tile(blockIdx.x);
  const int64_t first = (int64_t{blockIdx.y} * kWarps + warp_id()) * kFeatures;
  if (tile.rows == 0 || first >= weights.stored_rows) return;
  const Tokens tokens(task, tile);
  const Ring ring{weights,
                  weights.data + tile.expert * task.expert_elements + first * weights.stride,
                  tokens, shared_memory() + warp_id() * kStages * Ring::kBytes};
  ring.load_first_weights();
  typename Ring::Sums sums = {};
  ring.multiply_all(sums);
  write_warp_sums(sums, tile.rows, tile.first, first, task.output(out, tile));
}

/// Shared memory as linear_skinny has it: 96 or 80 KiB a block.
template <class T, int kTokenTiles>
void run(const GroupedLinearArgs& args, Stream stream) {
  constexpr int kWarps = 4, kStages = 16 / (1 + kTokenTiles);
  using Ring = WarpRing<T, PairTokens<T, 8 * kTokenTiles>, kTokenTiles, kStages>;
  const int64_t warps = args.layout.stored_rows() / kFeatures;
  const LaunchShape shape{
      .grid = {grid_size(args.num_tiles), grid_size(divide_up<int64_t>(warps, kWarps))},
      .threads = kWarps * kWarp,
      .shared_bytes = size_t{kWarps} * kStages * Ring::kBytes,
      .overlaps = true};
  launch("grouped_skinny", grouped_skinny_kernel<T, kTokenTiles, kWarps, kStages>, shape, stream,
         grouped_task<T>(args), weights_of<T>(args.weight, args.layout), grouped_output<T>(args));
}

}  // namespace

void grouped_skinny(const GroupedLinearArgs& args, Stream stream) {
  HEADRACE_CHECK(args.layout.stride() <= 0x7fffffff, args.layout.k);
  with_half(args.dtype, [&](auto element) {
    using T = decltype(element);
    if (args.tile_rows <= 8) {
      run<T, 1>(args, stream);
    } else {
      run<T, 2>(args, stream);
    }
  });
}

}  // namespace headrace::cuda
