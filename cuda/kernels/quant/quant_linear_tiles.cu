#include "cuda/kernels/linear/linear_epilogue.cuh"
#include "cuda/kernels/quant/quant_stage.cuh"

namespace headrace::cuda {
namespace {

constexpr int kTokens = 64, kWarpTokens = 32, kTokenWarps = kTokens / kWarpTokens;
constexpr int kTokenTiles = kWarpTokens / 8;
constexpr int kRowTiles = 2, kWarpFeatures = kRowTiles * kQuantTile;
constexpr int kMostFeatureWarps = 4;
[[maybe_unused]] constexpr int kMostThreads = kMostFeatureWarps * kTokenWarps * kWarp;
constexpr int kStages = 4, kStageBytes = kTokens * kStageRowBytes;
constexpr int kSumPadding = 4;
constexpr int64_t kSharedFeatureTiles = 8;

template <class T>
struct TileTask {
  QuantInput<T> input;
  QuantWeightView weight;
  int64_t units, tiles;  // of the weight
  int64_t feature_tiles, token_tiles;
  int feature_warps;  // of a block: 1, 2 or kMostFeatureWarps
};

struct TilePlace {
  int64_t feature_tile, token_tile;
};

/// Blocks that run together share weights and rows in the L2 cache.
template <class T>
__device__ TilePlace tile_place(const TileTask<T>& task, int64_t block) {
  const int64_t group = kSharedFeatureTiles * task.token_tiles;
  const int64_t first = block / group * kSharedFeatureTiles;
  const int64_t width = least<int64_t>(kSharedFeatureTiles, task.feature_tiles - first);
  return {first + block % group % width, block % group / width};
}

template <class T, int kBits>
struct TileWarp {
  const TileTask<T>& task;
  TilePlace place;
  int feature_warp, first_token;
  const uint8_t* tile;  // of the warp's first features
  GroupSums<kTokenTiles> sums[kRowTiles];
  float totals[kRowTiles][kTokenTiles][4] = {};
  RowZeros<T, kBits> zeros[kRowTiles];

  __device__ TileWarp(const TileTask<T>& t)
      : task(t),
        place(tile_place(t, blockIdx.x)),
        feature_warp(warp_id() % t.feature_warps),
        first_token(warp_id() / t.feature_warps * kWarpTokens),
        zeros{RowZeros<T, kBits>(quant_zero(kBits)), RowZeros<T, kBits>(quant_zero(kBits))} {
    // Behind the last features there is nothing to read, nor to write.
    const int64_t first = (place.feature_tile * task.feature_warps + feature_warp) * kRowTiles;
    tile = task.weight.tile(least<int64_t>(first, task.tiles - kRowTiles));
  }

  __device__ void load_input(int64_t stage) const {
    char* to = shared_memory() + stage % kStages * kStageBytes;
    for (int i = static_cast<int>(threadIdx.x); i < kTokens * kStageChunks;
         i += static_cast<int>(blockDim.x)) {
      const int row = i / kStageChunks, chunk = i % kStageChunks;
      task.input.copy_chunk(to + stage_chunk_byte(row, chunk), place.token_tile * kTokens + row,
                            stage * kQuantStage + chunk * 8);
    }
  }

  __device__ void multiply(int64_t stage, const StageCodes<kBits, kRowTiles>& held) {
    const char* tokens = shared_memory() + stage % kStages * kStageBytes;
    multiply_quant_stage(task.weight, stage, held, tokens + first_token * kStageRowBytes, zeros,
                         sums);
  }

  /// A slice is complete.
  __device__ void add_slice() {
    HEADRACE_UNROLL
    for (int i = 0; i < kRowTiles * kTokenTiles * 4; ++i) {
      const int r = i / (kTokenTiles * 4), t = i / 4 % kTokenTiles, c = i % 4;
      totals[r][t][c] += sums[r].sums[t][c];
      sums[r].sums[t][c] = 0.0f;
    }
  }

  __device__ void put_totals(float* to, int stride) const {
    const auto [g, q] = lane_place();
    HEADRACE_UNROLL
    for (int i = 0; i < kRowTiles * kTokenTiles * 4; ++i) {
      const int r = i / (kTokenTiles * 4), t = i / 4 % kTokenTiles, c = i % 4;
      to[(first_token + 8 * t + 2 * q + c % 2) * stride + feature_warp * kWarpFeatures +
         kQuantTile * r + g + c / 2 * 8] = totals[r][t][c];
    }
  }
};

/// Warps are [feature_warps][kTokenWarps], of 32 features and 32 tokens each. A stage's codes go to
/// registers while the one before is multiplied; x goes through shared memory.
template <class T, class Out, int kBits>
__global__ void __launch_bounds__(kMostThreads, 1)
    quant_linear_tiles_kernel(TileTask<T> task, LinearOutput<T, Out> out) {
  constexpr int64_t kStagesOfUnit = kQuantUnit / kQuantStage;
  const int64_t stages = task.units * kStagesOfUnit;
  start_next();
  TileWarp<T, kBits> warp(task);
  StageCodes<kBits, kRowTiles> next;
  next.load(task.weight, warp.tile, 0);
  wait_for_previous();
  HEADRACE_UNROLL
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < stages) warp.load_input(s);
    copy_async_commit();
  }
  int64_t stage = 0;
  HEADRACE_NO_UNROLL
  for (int slice = 0; slice < kQuantSlices; ++slice) {
    const int64_t end = slice_begin(task.units, slice + 1) * kStagesOfUnit;
    HEADRACE_NO_UNROLL
    for (; stage < end; ++stage) {
      const StageCodes<kBits, kRowTiles> held = next;
      if (stage + 1 < stages) next.load(task.weight, warp.tile, stage + 1);
      copy_async_wait<kStages - 2>();
      __syncthreads();
      if (stage + kStages - 1 < stages) warp.load_input(stage + kStages - 1);
      copy_async_commit();
      warp.multiply(stage, held);
    }
    warp.add_slice();
  }
  copy_async_wait<0>();
  __syncthreads();

  auto* sums = reinterpret_cast<float*>(shared_memory());
  const int features = task.feature_warps * kWarpFeatures, stride = features + kSumPadding;
  warp.put_totals(sums, stride);
  __syncthreads();
  const int64_t first_row = warp.place.token_tile * kTokens;
  const int64_t first = warp.place.feature_tile * features;
  const auto rows = static_cast<int>(least<int64_t>(kTokens, task.input.rows - first_row));
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  if (task.feature_warps == kMostFeatureWarps) {
    write_sums<kMostFeatureWarps * kWarpFeatures>(sums, stride, rows, first_row, first, out, thread,
                                                  threads);
  } else if (task.feature_warps == 2) {
    write_sums<2 * kWarpFeatures>(sums, stride, rows, first_row, first, out, thread, threads);
  } else {
    write_sums<kWarpFeatures>(sums, stride, rows, first_row, first, out, thread, threads);
  }
}

template <class T, class Out, int kBits>
void run(const QuantLinearArgs& args, Stream stream) {
  const QuantLayout layout = layout_of(args);
  const int64_t rows = divide_up<int64_t>(args.linear.x.rows, kTokens);
  const int64_t pairs = layout.tiles() / kRowTiles;
  // As many features as leave every multiprocessor a block.
  int warps = kMostFeatureWarps;
  while (warps > 1 && divide_up<int64_t>(pairs, warps) * rows < args.linear.multiprocessors) {
    warps /= 2;
  }
  const TileTask<T> task{.input = input_of<T>(args.linear),
                         .weight = view_of(layout, args.linear.weight),
                         .units = layout.units(),
                         .tiles = layout.tiles(),
                         .feature_tiles = divide_up<int64_t>(pairs, warps),
                         .token_tiles = rows,
                         .feature_warps = warps};
  const size_t sums =
      sizeof(float) * kTokens * static_cast<size_t>(warps * kWarpFeatures + kSumPadding);
  launch("quant_linear_tiles", quant_linear_tiles_kernel<T, Out, kBits>,
         {.grid = {grid_size(task.feature_tiles * task.token_tiles)},
          .threads = static_cast<unsigned>(warps * kTokenWarps * kWarp),
          .shared_bytes = greatest(size_t{kStages} * kStageBytes, sums),
          .overlaps = true},
         stream, task, linear_output<T, Out>(args.linear));
}

}  // namespace

void quant_linear_tiles(const QuantLinearArgs& args, Stream stream) {
  with_linear_types(args.linear, [&](auto element, auto result) {
    using T = decltype(element);
    using Out = decltype(result);
    if (args.format.bits == 8) {
      run<T, Out, 8>(args, stream);
    } else {
      run<T, Out, 4>(args, stream);
    }
  });
}

}  // namespace headrace::cuda
