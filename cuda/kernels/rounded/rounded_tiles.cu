#include "cuda/kernels/rounded/rounded_tiles.cuh"

namespace headrace::cuda {
namespace {

constexpr int64_t kSharedFeatureTiles = 8;

struct TileTask {
  RoundedTask all;
  int64_t feature_tiles, token_tiles;
  int feature_warps;  // of a block
};

/// Blocks that run together share weights and rows in the L2 cache.
template <class Code, class T, class Out>
__global__ void __launch_bounds__(many::kMostThreads, 1)
    rounded_tiles_kernel(TileTask task, LinearOutput<T, Out> out) {
  start_next();
  const int64_t group = kSharedFeatureTiles * task.token_tiles, block = blockIdx.x;
  const int64_t first = block / group * kSharedFeatureTiles;
  const int64_t width = least<int64_t>(kSharedFeatureTiles, task.feature_tiles - first);
  const int64_t first_row = block % group / width * many::kTokens;
  many::multiply_block<Code>(
      task.all, task.feature_warps, first + block % group % width, first_row,
      [] { wait_for_previous(); }, first_row, out);
}

template <class Code, class T, class Out>
void run(const QuantLinearArgs& args, Stream stream) {
  const RoundedTask all = rounded_task(args);
  const int64_t rows = divide_up<int64_t>(all.rows, many::kTokens);
  const int64_t pairs = all.tiles / many::kRowTiles;
  const int warps = many::choose_feature_warps(pairs, rows, args.linear.multiprocessors);
  const TileTask task{.all = all,
                      .feature_tiles = divide_up<int64_t>(pairs, warps),
                      .token_tiles = rows,
                      .feature_warps = warps};
  launch("rounded_tiles", rounded_tiles_kernel<Code, T, Out>,
         {.grid = {grid_size(task.feature_tiles * task.token_tiles)},
          .threads = static_cast<unsigned>(many::block_threads(warps)),
          .shared_bytes = static_cast<size_t>(many::shared_bytes(warps)),
          .overlaps = true},
         stream, task, linear_output<T, Out>(args.linear));
}

}  // namespace

void rounded_linear_tiles(const QuantLinearArgs& args, Stream stream) {
  with_rounded_types(args, [&](auto code, auto element, auto result) {
    run<decltype(code), decltype(element), decltype(result)>(args, stream);
  });
}

}  // namespace headrace::cuda
