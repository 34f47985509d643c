#include "cuda/kernels/experts/grouped_kernels.cuh"
#include "cuda/kernels/linear/linear_tiles.cuh"

namespace headrace::cuda {
namespace {

using namespace tiles;

template <class T>
struct TileWeights {
  const T* data;
  int64_t stride, stored_rows, k, units;
};

/// Blocks that run together have the same features: those of one expert share them in the L2 cache.
template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    grouped_tiles_kernel(GroupedTask<T> task, TileWeights<T> weights, LinearOutput<T, T> out) {
  constexpr int kOwn = C::kTokens * kChunks / C::kThreads;  // chunks of tokens that a thread copies
  char* shared = shared_memory();
  start_next();
  wait_for_previous();
  const ExpertTile tile = task.tile(blockIdx.x);
  if (tile.rows == 0) return;
  const T* weight = weights.data + tile.expert * task.expert_elements;
  const int64_t first_feature = int64_t{blockIdx.y} * C::kFeatures;
  const T* tokens[kOwn];
  HEADRACE_UNROLL
  for (int i = 0; i < kOwn; ++i) {
    const int row = (i * C::kThreads + static_cast<int>(threadIdx.x)) / kChunks;
    tokens[i] = task.token(tile, least(row, tile.rows - 1));
  }

  const auto load = [&](int64_t unit) {
    if (unit < weights.units) {
      char* stage = shared + unit % C::kStages * C::kStageBytes;
      load_weight<C>(weight, weights.stride, weights.stored_rows, first_feature, unit, stage);
      HEADRACE_UNROLL
      for (int i = 0; i < kOwn; ++i) {
        const int at = i * C::kThreads + static_cast<int>(threadIdx.x);
        const int row = at / kChunks, chunk = at % kChunks;
        load_token_chunk(tokens[i], unit * kUnit + chunk * 8, row < tile.rows ? weights.k : 0,
                         task.x_vectors, stage + C::kFeatures * kRowBytes + chunk_byte(row, chunk));
      }
    }
    copy_async_commit();
  };
  WarpSums sums = {};
  HEADRACE_UNROLL
  for (int s = 0; s < C::kStages - 1; ++s) load(s);
  HEADRACE_NO_UNROLL
  for (int64_t unit = 0; unit < weights.units; ++unit) {
    copy_async_wait<C::kStages - 2>();
    __syncthreads();
    load(unit + C::kStages - 1);
    if (warp_token<C>() >= tile.rows) continue;  // the whole warp: nobody reads its sums
    multiply_stage<C, T>(shared + unit % C::kStages * C::kStageBytes, warp_feature<C>(),
                         warp_token<C>(), sums);
  }
  write_tile<C>(sums, shared, tile.rows, tile.first, first_feature, task.output(out, tile));
}

template <class T, class C>
void run(const GroupedLinearArgs& args, Stream stream) {
  const WeightLayout& layout = args.layout;
  const TileWeights<T> weights{static_cast<const T*>(args.weight), layout.stride(),
                               layout.stored_rows(), layout.k, layout.stride() / kUnit};
  const int64_t features = divide_up<int64_t>(weights.stored_rows, C::kFeatures);
  launch("grouped_tiles", grouped_tiles_kernel<T, C>,
         {.grid = {grid_size(args.num_tiles), grid_size(features)},
          .threads = C::kThreads,
          .shared_bytes = C::kSharedBytes,
          .overlaps = true},
         stream, grouped_task<T>(args), weights, grouped_output<T>(args));
}

}  // namespace

void grouped_tiles(const GroupedLinearArgs& args, Stream stream) {
  HEADRACE_CHECK(args.tile_rows == 64 || args.tile_rows == 128, args.tile_rows);
  with_half(args.dtype, [&](auto element) {
    using T = decltype(element);
    if (args.tile_rows == 128) return run<T, Tile<128, 128>>(args, stream);
    // Tiles as large as leave every multiprocessor one.
    if (args.layout.stored_rows() / 128 * args.num_tiles >= args.multiprocessors) {
      run<T, Tile<128, 64>>(args, stream);
    } else {
      run<T, Tile<64, 64>>(args, stream);
    }
  });
}

}  // namespace headrace::cuda
