#include "cuda/kernels/linear/linear_tiles.cuh"

#include "cuda/kernels/linear/linear_kernels.h"

namespace headrace::cuda {
namespace {

using namespace tiles;

constexpr int64_t kSharedFeatureTiles = 8;

template <class T>
struct TileTask {
  const T* x;
  int64_t x_stride, rows;
  const T* weight;
  int64_t weight_stride, stored_rows, k;
  int64_t units;  // of k
  int64_t feature_tiles, token_tiles;
  bool x_vectors;
};

struct TilePlace {
  int64_t feature_tile, token_tile;
};

/// Blocks that run together share weight tiles and rows in the L2 cache.
template <class T>
__device__ TilePlace tile_place(const TileTask<T>& task, int64_t block) {
  const int64_t group = kSharedFeatureTiles * task.token_tiles;
  const int64_t first = block / group * kSharedFeatureTiles;
  const int64_t width = least<int64_t>(kSharedFeatureTiles, task.feature_tiles - first);
  return {first + block % group % width, block % group / width};
}

template <class C, class T>
__device__ void load_tokens(const TileTask<T>& task, const TilePlace& place, int64_t unit,
                            char* stage) {
  char* tokens = stage + C::kFeatures * kRowBytes;
  HEADRACE_UNROLL
  for (int i = static_cast<int>(threadIdx.x); i < C::kTokens * kChunks; i += C::kThreads) {
    const int row = i / kChunks, chunk = i % kChunks;
    const int64_t token = place.token_tile * C::kTokens + row;
    const bool exists = token < task.rows;
    load_token_chunk(task.x + (exists ? token : 0) * task.x_stride, unit * kUnit + chunk * 8,
                     exists ? task.k : 0, task.x_vectors, tokens + chunk_byte(row, chunk));
  }
}

template <class T, class Out, class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    linear_tiles_kernel(TileTask<T> task, LinearOutput<T, Out> out) {
  char* shared = shared_memory();
  const TilePlace place = tile_place(task, blockIdx.x);
  const int64_t first_feature = place.feature_tile * C::kFeatures;
  WarpSums sums = {};

  const auto load = [&](int64_t unit) {
    if (unit < task.units) {
      char* stage = shared + unit % C::kStages * C::kStageBytes;
      load_weight<C>(task.weight, task.weight_stride, task.stored_rows, first_feature, unit, stage);
      load_tokens<C>(task, place, unit, stage);
    }
    copy_async_commit();
  };
  start_next();
  wait_for_previous();
  HEADRACE_UNROLL
  for (int s = 0; s < C::kStages - 1; ++s) load(s);
  HEADRACE_NO_UNROLL
  for (int64_t unit = 0; unit < task.units; ++unit) {
    copy_async_wait<C::kStages - 2>();
    __syncthreads();
    load(unit + C::kStages - 1);
    multiply_stage<C, T>(shared + unit % C::kStages * C::kStageBytes, warp_feature<C>(),
                         warp_token<C>(), sums);
  }
  const int64_t first_row = place.token_tile * C::kTokens;
  write_tile<C>(sums, shared, static_cast<int>(least<int64_t>(C::kTokens, task.rows - first_row)),
                first_row, first_feature, out);
}

template <class T, class Out, class C>
void run(const LinearArgs& args, Stream stream) {
  const WeightLayout& layout = args.layout;
  const auto* x = static_cast<const T*>(args.x.data);
  const TileTask<T> task{x,
                         args.x.stride,
                         args.x.rows,
                         static_cast<const T*>(args.weight),
                         layout.stride(),
                         layout.stored_rows(),
                         layout.k,
                         layout.stride() / kUnit,
                         divide_up<int64_t>(layout.stored_rows(), C::kFeatures),
                         divide_up<int64_t>(args.x.rows, C::kTokens),
                         is_vectorizable(x, args.x.stride, 0)};
  launch("linear_tiles", linear_tiles_kernel<T, Out, C>,
         {.grid = {grid_size(task.feature_tiles * task.token_tiles)},
          .threads = C::kThreads,
          .shared_bytes = C::kSharedBytes,
          .overlaps = true},
         stream, task, linear_output<T, Out>(args));
}

}  // namespace

void linear_tiles(const LinearArgs& args, Stream stream) {
  with_linear_types(args, [&](auto element, auto result) {
    using T = decltype(element);
    using Out = decltype(result);
    // Tiles as large as leave every multiprocessor one.
    const int64_t features = args.layout.stored_rows(), rows = args.x.rows;
    if (rows > 64 && features / 128 * divide_up<int64_t>(rows, 128) >= args.multiprocessors) {
      run<T, Out, Tile<128, 128>>(args, stream);
    } else if (features / 128 * divide_up<int64_t>(rows, 64) >= args.multiprocessors) {
      run<T, Out, Tile<128, 64>>(args, stream);
    } else {
      run<T, Out, Tile<64, 64>>(args, stream);
    }
  });
}

}  // namespace headrace::cuda
