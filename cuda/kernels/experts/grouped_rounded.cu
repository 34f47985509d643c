#include "cuda/kernels/experts/grouped_kernels.cuh"
#include "cuda/kernels/rounded/rounded_few.cuh"
#include "cuda/kernels/rounded/rounded_tiles.cuh"

namespace headrace::cuda {
namespace {

/// The pairs of a tile and their expert's matrix, as the bodies of rounded_linear()'s kernels want
/// them.
struct RoundedPairs : RoundedTask {
  static constexpr bool kOftenFew = true;
  const int32_t* places;  // in shared memory: which row of codes each pair takes

  __device__ int64_t row_at(int64_t pair) const { return places[least(pair, rows - 1)]; }
  __device__ float row_scale(int64_t pair, int64_t unit) const {
    return scales[(by_unit ? unit * scale_stride : 0) + row_at(pair)];
  }
};

struct PairsTask {
  RoundedTask all;  // of expert 0
  int64_t expert_bytes;
  const int32_t* pair_rows;
  const ExpertTile* tiles;
  int feature_tiles;  // few: of 16, of a block; many: warps of features

  __device__ RoundedPairs of(const ExpertTile& tile, int32_t* places) const {
    RoundedPairs out{all, places};
    out.weight += tile.expert * expert_bytes;
    out.rows = tile.rows;
    return out;
  }
  /// By all threads of a block.
  __device__ void find_rows(const ExpertTile& tile, int32_t* places) const {
    for (int i = static_cast<int>(threadIdx.x); i < tile.rows; i += static_cast<int>(blockDim.x)) {
      places[i] = pair_rows == nullptr ? tile.first + i : pair_rows[tile.first + i];
    }
    __syncthreads();
  }
};

constexpr int place_bytes(int tokens) { return tokens * static_cast<int>(sizeof(int32_t)); }

/// Blocks that run together have the same features of different experts.
template <class Code, class T, int kTokenTiles>
__global__ void __launch_bounds__(few::most_threads(kTokenTiles), 1)
    grouped_rounded_few_kernel(PairsTask task, LinearOutput<T, T> out) {
  start_next();
  wait_for_previous();
  const ExpertTile tile = task.tiles[blockIdx.x];
  if (tile.rows == 0) return;
  auto* const places =
      reinterpret_cast<int32_t*>(shared_memory() + few::sum_bytes(task.feature_tiles, kTokenTiles));
  few::multiply_block<Code, kTokenTiles>(
      task.of(tile, places), task.feature_tiles, blockIdx.y, [&] { task.find_rows(tile, places); },
      tile.first, out.of_expert(tile.expert));
}

template <class Code, class T>
__global__ void __launch_bounds__(many::kMostThreads, 1)
    grouped_rounded_tiles_kernel(PairsTask task, LinearOutput<T, T> out) {
  start_next();
  wait_for_previous();
  const ExpertTile tile = task.tiles[blockIdx.x];
  if (tile.rows == 0) return;
  auto* const places =
      reinterpret_cast<int32_t*>(shared_memory() + many::shared_bytes(task.feature_tiles));
  many::multiply_block<Code>(
      task.of(tile, places), task.feature_tiles, blockIdx.y, 0,
      [&] { task.find_rows(tile, places); }, tile.first, out.of_expert(tile.expert));
}

PairsTask pairs_task(const GroupedLinearArgs& args) {
  QuantLinearArgs as;
  as.linear.weight = args.weight;
  as.linear.layout = args.layout;
  as.linear.x = args.x;
  as.format = args.quant;
  as.rounded = args.rounded;
  const QuantLayout layout{args.layout, args.quant};
  return {.all = rounded_task(as),
          .expert_bytes = layout.bytes(),
          .pair_rows = args.pair_rows,
          .tiles = args.tiles,
          .feature_tiles = 0};
}

template <class Code, class T, int kTokenTiles>
void run_few(const GroupedLinearArgs& args, Stream stream) {
  PairsTask task = pairs_task(args);
  const int64_t wide = task.all.tiles / few::kMostTiles;
  task.feature_tiles = kTokenTiles < 4 && wide * args.num_tiles >= int64_t{2} * args.multiprocessors
                           ? few::kMostTiles
                           : few::kMostTiles / 2;
  launch("grouped_rounded_few", grouped_rounded_few_kernel<Code, T, kTokenTiles>,
         {.grid = {grid_size(args.num_tiles), grid_size(task.all.tiles / task.feature_tiles)},
          .threads = static_cast<unsigned>(few::block_threads(task.feature_tiles)),
          .shared_bytes = static_cast<size_t>(few::sum_bytes(task.feature_tiles, kTokenTiles) +
                                              place_bytes(8 * kTokenTiles)),
          .overlaps = true},
         stream, task, grouped_output<T>(args));
}

template <class Code, class T>
void run_tiles(const GroupedLinearArgs& args, Stream stream) {
  static_assert(many::kTokens == kQuantTileRows);
  PairsTask task = pairs_task(args);
  const int64_t pairs = task.all.tiles / many::kRowTiles;
  const int warps = many::choose_feature_warps(pairs, args.num_tiles, args.multiprocessors);
  task.feature_tiles = warps;
  launch(
      "grouped_rounded_tiles", grouped_rounded_tiles_kernel<Code, T>,
      {.grid = {grid_size(args.num_tiles), grid_size(divide_up<int64_t>(pairs, warps))},
       .threads = static_cast<unsigned>(many::block_threads(warps)),
       .shared_bytes = static_cast<size_t>(many::shared_bytes(warps) + place_bytes(many::kTokens)),
       .overlaps = true},
      stream, task, grouped_output<T>(args));
}

template <class Code>
void run(const GroupedLinearArgs& args, Stream stream) {
  if (args.dtype == DType::kF32) {
    HEADRACE_CHECK(args.tile_rows == kF32TileRows, args.tile_rows);
    return run_few<Code, float, kF32TileRows / 8>(args, stream);
  }
  with_half(args.dtype, [&](auto element) {
    using T = decltype(element);
    if (args.tile_rows == 8) return run_few<Code, T, 1>(args, stream);
    if (args.tile_rows == 16) return run_few<Code, T, 2>(args, stream);
    HEADRACE_CHECK(args.tile_rows == kQuantTileRows, args.tile_rows);
    run_tiles<Code, T>(args, stream);
  });
}

}  // namespace

void grouped_rounded(const GroupedLinearArgs& args, Stream stream) {
  round_rows({.dtype = args.dtype,
              .x = args.x,
              .layout = {args.layout, args.quant},
              .out = args.rounded,
              .used_rows = args.used_rows},
             stream);
  if (has_float8(args.quant)) {
    run<Float8Code>(args, stream);
  } else {
    run<Int8Code>(args, stream);
  }
}

}  // namespace headrace::cuda
