#include "cuda/device/cp_async.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/kernels/linear_epilogue.cuh"
#include "cuda/kernels/linear_kernels.h"

namespace headrace::cuda {
namespace {

constexpr int kFeatures = 128;                       // of a block's tile
constexpr int kWarpFeatures = 64, kWarpTokens = 32;  // of a warp's
constexpr int kRowTiles = kWarpFeatures / 16, kTokenTiles = kWarpTokens / 8;
constexpr int kUnit = static_cast<int>(kWeightColUnit);
constexpr int kRowBytes = kUnit * 2;  // of a tile's row in shared memory: eight chunks of 16 bytes
constexpr int kChunks = kRowBytes / 16;
constexpr int kSumPadding = 4;
constexpr int64_t kSharedFeatureTiles = 8;

constexpr int stages(int tokens) { return tokens == 128 ? 3 : 4; }
constexpr int stage_bytes(int tokens) { return (kFeatures + tokens) * kRowBytes; }

constexpr size_t tile_shared_bytes(int tokens) {
  const size_t sums = sizeof(float) * static_cast<size_t>(tokens) * (kFeatures + kSumPadding);
  return greatest(static_cast<size_t>(stages(tokens) * stage_bytes(tokens)), sums);
}

template <class T>
struct TileTask {
  const T* x;
  int64_t x_stride, rows;
  const T* weight;
  int64_t weight_stride, k;
  int64_t units, slice_units;  // of k
  int64_t feature_tiles, token_tiles;
  bool x_vectors;
  float* partials;  // [slices][rows][stored features] if grid.y is by slice, else null
  int64_t partial_stride;
};

/// Byte of a chunk in a tile. Two rows' halves change places, so that the 16-byte reads of eight
/// lanes (two rows, four chunks) and the writes of eight (one row) meet every bank once.
__device__ inline int chunk_byte(int row, int chunk) {
  return row * kRowBytes + (chunk ^ ((row & 1) << 2)) * 16;
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

/// One unit of k of the block's weight rows and tokens into a stage.
template <class T, int kTokens, int kThreads>
__device__ void load_stage(const TileTask<T>& task, const TilePlace& place, int64_t unit,
                           char* stage) {
  const int thread = static_cast<int>(threadIdx.x);
  const T* weight = task.weight + place.feature_tile * kFeatures * task.weight_stride;
  HEADRACE_UNROLL
  for (int i = thread; i < kFeatures * kChunks; i += kThreads) {
    const int row = i / kChunks, chunk = i % kChunks;
    const bool exists = place.feature_tile * kFeatures + row < task.partial_stride;
    copy_async_16(stage + chunk_byte(row, chunk),
                  weight + (exists ? row * task.weight_stride : 0) + unit * kUnit + chunk * 8,
                  exists ? 16 : 0);
  }
  char* tokens = stage + kFeatures * kRowBytes;
  HEADRACE_UNROLL
  for (int i = thread; i < kTokens * kChunks; i += kThreads) {
    const int row = i / kChunks, chunk = i % kChunks;
    const int64_t token = place.token_tile * kTokens + row, k = unit * kUnit + chunk * 8;
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
template <class T>
__device__ void multiply_stage(const char* stage, int first_feature, int first_token,
                               WarpSums& sums) {
  const auto [g, q] = lane_place();
  const char* tokens = stage + kFeatures * kRowBytes;
  const auto read = [](const char* tile, int row, int chunk) {
    return *reinterpret_cast<const uint4*>(tile + chunk_byte(row, chunk));
  };
  HEADRACE_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int chunk = half * 4 + q;
    uint4 x[kTokenTiles];
    HEADRACE_UNROLL
    for (int t = 0; t < kTokenTiles; ++t) x[t] = read(tokens, first_token + 8 * t + g, chunk);
    HEADRACE_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      const uint4 low = read(stage, first_feature + 16 * r + g, chunk);
      const uint4 high = read(stage, first_feature + 16 * r + 8 + g, chunk);
      HEADRACE_UNROLL
      for (int t = 0; t < kTokenTiles; ++t) mma_16x8x32<T>(sums[r][t], low, high, x[t]);
    }
  }
}

__device__ inline void add_slice(WarpSums& totals, WarpSums& sums) {
  HEADRACE_UNROLL
  for (int i = 0; i < kRowTiles * kTokenTiles * 4; ++i) {
    const int r = i / (kTokenTiles * 4), t = i / 4 % kTokenTiles;
    totals[r][t][i % 4] += sums[r][t][i % 4];
    sums[r][t][i % 4] = 0.0f;
  }
}

/// Warps are [2 along features][kTokens / 32 along tokens].
template <class T, class Out, int kTokens>
__global__ void __launch_bounds__(2 * kTokens, 1)
    linear_tiles_kernel(TileTask<T> task, LinearOutput<T, Out> out) {
  constexpr int kThreads = 2 * kTokens, kStages = stages(kTokens);
  char* shared = shared_memory();
  const TilePlace place = tile_place(task, blockIdx.x);
  const bool by_slice = task.partials != nullptr;
  const int64_t begin = by_slice ? blockIdx.y * task.slice_units : 0;
  const int64_t end = by_slice ? least(begin + task.slice_units, task.units) : task.units;
  const int first_feature = warp_id() % 2 * kWarpFeatures;
  const int first_token = warp_id() / 2 * kWarpTokens;
  WarpSums totals = {}, sums = {};

  const auto load = [&](int64_t unit) {
    if (unit < end) {
      load_stage<T, kTokens, kThreads>(task, place, unit,
                                       shared + (unit - begin) % kStages * stage_bytes(kTokens));
    }
    copy_async_commit();
  };
  HEADRACE_UNROLL
  for (int s = 0; s < kStages - 1; ++s) load(begin + s);
  HEADRACE_NO_UNROLL
  for (int64_t unit = begin; unit < end; ++unit) {
    copy_async_wait<kStages - 2>();
    __syncthreads();
    load(unit + kStages - 1);
    multiply_stage<T>(shared + (unit - begin) % kStages * stage_bytes(kTokens), first_feature,
                      first_token, sums);
    if ((unit + 1) % task.slice_units == 0 || unit + 1 == end) add_slice(totals, sums);
  }
  copy_async_wait<0>();
  __syncthreads();

  auto* tile = reinterpret_cast<float*>(shared);
  constexpr int kRowStride = kFeatures + kSumPadding;
  const auto [g, q] = lane_place();
  HEADRACE_UNROLL
  for (int i = 0; i < kRowTiles * kTokenTiles * 4; ++i) {
    const int r = i / (kTokenTiles * 4), t = i / 4 % kTokenTiles, c = i % 4;
    tile[(first_token + 8 * t + 2 * q + c % 2) * kRowStride + first_feature + 16 * r + g +
         c / 2 * 8] = totals[r][t][c];
  }
  __syncthreads();
  const int64_t first_row = place.token_tile * kTokens;
  const int rows = static_cast<int>(least<int64_t>(kTokens, task.rows - first_row));
  const int64_t feature = place.feature_tile * kFeatures;
  if (!by_slice) {
    write_tile<T, Out>({tile, 0, kRowStride, 1, kFeatures, feature, first_row, rows}, out,
                       static_cast<int>(threadIdx.x), kThreads);
    return;
  }
  float* to = task.partials + blockIdx.y * task.rows * task.partial_stride;
  for (int i = static_cast<int>(threadIdx.x); i < rows * kFeatures; i += kThreads) {
    const int row = i / kFeatures, j = i % kFeatures;
    if (feature + j >= task.partial_stride) continue;
    to[(first_row + row) * task.partial_stride + feature + j] = tile[row * kRowStride + j];
  }
}

/// Adds the slices' sums: a block takes 64 features of one row.
template <class T, class Out>
__global__ void linear_merge_kernel(const float* partials, int64_t rows, int64_t stride, int slices,
                                    LinearOutput<T, Out> out) {
  constexpr int kMergeFeatures = 64;
  const int64_t row = blockIdx.x, feature = int64_t{blockIdx.y} * kMergeFeatures;
  write_tile<T, Out>({partials + row * stride + feature, rows * stride, stride, slices,
                      kMergeFeatures, feature, row, 1},
                     out, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
}

struct TileGrid {
  int tokens;  // of a tile
  int64_t feature_tiles, token_tiles;
  int slices;  // 1: a block does all of k
};

TileGrid tile_grid(int64_t rows, const WeightLayout& layout, int32_t multiprocessors) {
  const int tokens = rows <= 64 ? 64 : 128;
  TileGrid grid{tokens, divide_up<int64_t>(layout.stored_rows(), kFeatures),
                divide_up<int64_t>(rows, tokens), 1};
  // Fewer tiles than the device holds at a time: slices get blocks of their own.
  const int64_t blocks = grid.feature_tiles * grid.token_tiles;
  if (blocks <= multiprocessors) grid.slices = static_cast<int>(k_slices(layout.k));
  return grid;
}

template <class T, class Out, int kTokens>
void run(const LinearArgs& args, const TileGrid& grid, Stream stream) {
  const WeightLayout& layout = args.layout;
  const auto* x = static_cast<const T*>(args.x.data);
  const int64_t rows = args.x.rows, stored = layout.stored_rows();
  auto* partials = grid.slices > 1 ? static_cast<float*>(args.workspace) : nullptr;
  HEADRACE_CHECK(grid.slices == 1 || partials != nullptr);
  const TileTask<T> task{x,
                         args.x.stride,
                         rows,
                         static_cast<const T*>(args.weight),
                         layout.stride(),
                         layout.k,
                         layout.stride() / kUnit,
                         k_slice_units(layout.k),
                         grid.feature_tiles,
                         grid.token_tiles,
                         is_vectorizable(x, args.x.stride, 0),
                         partials,
                         stored};
  const auto out = linear_output<T, Out>(args);
  const LaunchShape shape{.grid = {grid_size(grid.feature_tiles * grid.token_tiles),
                                   static_cast<unsigned>(grid.slices)},
                          .threads = 2 * kTokens,
                          .shared_bytes = tile_shared_bytes(kTokens)};
  launch("linear_tiles", linear_tiles_kernel<T, Out, kTokens>, shape, stream, task, out);
  if (partials == nullptr) return;
  const LaunchShape merge{.grid = {grid_size(rows), grid_size(stored / 64)}, .threads = 64};
  launch("linear_merge", linear_merge_kernel<T, Out>, merge, stream,
         static_cast<const float*>(partials), rows, stored, grid.slices, out);
}

}  // namespace

size_t linear_tiles_workspace_bytes(int64_t rows, const WeightLayout& layout,
                                    int32_t multiprocessors) {
  const TileGrid grid = tile_grid(rows, layout, multiprocessors);
  if (grid.slices == 1) return 0;
  return sizeof(float) * static_cast<size_t>(grid.slices) *
         static_cast<size_t>(rows * layout.stored_rows());
}

void linear_tiles(const LinearArgs& args, Stream stream) {
  const TileGrid grid = tile_grid(args.x.rows, args.layout, args.multiprocessors);
  with_linear_types(args, [&](auto element, auto result) {
    using T = decltype(element);
    using Out = decltype(result);
    if (grid.tokens == 64) {
      run<T, Out, 64>(args, grid, stream);
    } else {
      run<T, Out, 128>(args, grid, stream);
    }
  });
}

}  // namespace headrace::cuda
