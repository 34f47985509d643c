#include "cuda/device/cp_async.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/kernels/linear_epilogue.cuh"
#include "cuda/kernels/linear_kernels.h"

namespace headrace::cuda {
namespace {

constexpr int kWarpFeatures = 64, kWarpTokens = 32;  // of a warp's part of a block's tile
constexpr int kRowTiles = kWarpFeatures / 16, kTokenTiles = kWarpTokens / 8;
constexpr int kUnit = static_cast<int>(kWeightColUnit);
constexpr int kRowBytes = kUnit * 2;  // of a tile's row in shared memory: eight chunks of 16 bytes
constexpr int kChunks = kRowBytes / 16;
constexpr int kSumPadding = 4;
constexpr int64_t kSharedFeatureTiles = 8;

/// A block's tile.
template <int kFeatures_, int kTokens_>
struct Tile {
  static constexpr int kFeatures = kFeatures_;
  static constexpr int kTokens = kTokens_;
  static constexpr int kFeatureWarps = kFeatures / kWarpFeatures;
  static constexpr int kThreads = kFeatureWarps * (kTokens / kWarpTokens) * kWarp;
  static constexpr int kStageBytes = (kFeatures + kTokens) * kRowBytes;
  static constexpr int kStages = kTokens == 128 ? 3 : 4;
  static constexpr int kSumStride = kFeatures + kSumPadding;
  static constexpr size_t kSharedBytes =
      greatest(size_t{kStages} * kStageBytes, sizeof(float) * kTokens * kSumStride);
  static_assert(kSharedBytes <= 99 << 10, "sm_86 has no more");
};

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

/// Byte of a chunk in a tile: ldmatrix, which takes a chunk of 8 rows, meets every bank once, and
/// so do copies of a row.
__device__ inline int chunk_byte(int row, int chunk) {
  return row * kRowBytes + (chunk ^ (row & 7)) * 16;
}

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
__device__ void load_weight(const TileTask<T>& task, const TilePlace& place, int64_t unit,
                            char* stage) {
  const int64_t first = place.feature_tile * C::kFeatures;
  HEADRACE_UNROLL
  for (int i = static_cast<int>(threadIdx.x); i < C::kFeatures * kChunks; i += C::kThreads) {
    const int row = i / kChunks, chunk = i % kChunks;
    const bool exists = first + row < task.stored_rows;
    copy_async_16(
        stage + chunk_byte(row, chunk),
        task.weight + (first + (exists ? row : 0)) * task.weight_stride + unit * kUnit + chunk * 8,
        exists ? 16 : 0);
  }
}

template <class C, class T>
__device__ void load_tokens(const TileTask<T>& task, const TilePlace& place, int64_t unit,
                            char* stage) {
  char* tokens = stage + C::kFeatures * kRowBytes;
  HEADRACE_UNROLL
  for (int i = static_cast<int>(threadIdx.x); i < C::kTokens * kChunks; i += C::kThreads) {
    const int row = i / kChunks, chunk = i % kChunks;
    const int64_t token = place.token_tile * C::kTokens + row, k = unit * kUnit + chunk * 8;
    char* to = tokens + chunk_byte(row, chunk);
    const int64_t left = token < task.rows ? greatest<int64_t>(task.k - k, 0) : 0;
    const int count = static_cast<int>(least<int64_t>(left, 8));
    const T* from = task.x + (count > 0 ? token * task.x_stride + k : 0);
    if (task.x_vectors) {
      copy_async_16(to, from, count * 2);
      continue;
    }
    auto* elements = reinterpret_cast<T*>(to);
    for (int j = 0; j < 8; ++j) elements[j] = j < count ? from[j] : T{0};
  }
}

using WarpSums = float[kRowTiles][kTokenTiles][4];

/// sums += the products of a stage.
template <class C, class T>
__device__ void multiply_stage(const char* stage, int first_feature, int first_token,
                               WarpSums& sums) {
  const char* tokens = stage + C::kFeatures * kRowBytes;
  const int lane = lane_id();
  HEADRACE_UNROLL
  for (int step = 0; step < kUnit / 16; ++step) {
    uint32_t b[kTokenTiles][2];
    HEADRACE_UNROLL
    for (int t = 0; t < kTokenTiles; t += 2) {
      uint32_t two[4];
      load_matrices(two, tokens + chunk_byte(first_token + 8 * t + lane / 16 * 8 + lane % 8,
                                             2 * step + lane / 8 % 2));
      for (int i = 0; i < 4; ++i) b[t + i / 2][i % 2] = two[i];
    }
    HEADRACE_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      uint32_t a[4];
      load_matrices(a,
                    stage + chunk_byte(first_feature + 16 * r + lane % 16, 2 * step + lane / 16));
      HEADRACE_UNROLL
      for (int t = 0; t < kTokenTiles; ++t) mma_16x8x16<T>(sums[r][t], a, b[t]);
    }
  }
}

/// Warps are [C::kFeatureWarps along features][along tokens].
template <class T, class Out, class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    linear_tiles_kernel(TileTask<T> task, LinearOutput<T, Out> out) {
  char* shared = shared_memory();
  const TilePlace place = tile_place(task, blockIdx.x);
  const int first_feature = warp_id() % C::kFeatureWarps * kWarpFeatures;
  const int first_token = warp_id() / C::kFeatureWarps * kWarpTokens;
  WarpSums sums = {};

  const auto load = [&](int64_t unit) {
    if (unit < task.units) {
      char* stage = shared + unit % C::kStages * C::kStageBytes;
      load_weight<C>(task, place, unit, stage);
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
    multiply_stage<C, T>(shared + unit % C::kStages * C::kStageBytes, first_feature, first_token,
                         sums);
  }
  copy_async_wait<0>();
  __syncthreads();

  auto* tile = reinterpret_cast<float*>(shared);
  const auto [g, q] = lane_place();
  HEADRACE_UNROLL
  for (int i = 0; i < kRowTiles * kTokenTiles * 4; ++i) {
    const int r = i / (kTokenTiles * 4), t = i / 4 % kTokenTiles, c = i % 4;
    tile[(first_token + 8 * t + 2 * q + c % 2) * C::kSumStride + first_feature + 16 * r + g +
         c / 2 * 8] = sums[r][t][c];
  }
  __syncthreads();
  const int64_t first_row = place.token_tile * C::kTokens;
  write_sums<C::kFeatures>(tile, C::kSumStride,
                           static_cast<int>(least<int64_t>(C::kTokens, task.rows - first_row)),
                           first_row, place.feature_tile * C::kFeatures, out,
                           static_cast<int>(threadIdx.x), C::kThreads);
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
