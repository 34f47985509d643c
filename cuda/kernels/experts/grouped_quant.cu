#include "cuda/kernels/experts/grouped_kernels.cuh"
#include "cuda/kernels/linear/linear_tiles.cuh"
#include "cuda/kernels/quant/quant_stage.cuh"

namespace headrace::cuda {
namespace {

constexpr int kFeatureWarps = 2;  // of each slice of k
constexpr int kSliceThreads = kFeatureWarps * kWarp;
constexpr int kThreads = kQuantSlices * kSliceThreads;
constexpr int kStagesOfUnit = kQuantUnit / kQuantStage;
constexpr int kSumPadding = 4;

template <class T>
struct QuantTask {
  GroupedTask<T> pairs;  // expert_elements: bytes
  QuantWeightView weight;
  int64_t k;
  int units;
};

/// What a block multiplies: a slice's warps have 16 * kRowTiles features each and all tokens.
template <int kBits, int kRowTiles, int kTokenTiles>
struct Block {
  static constexpr int kTokens = 8 * kTokenTiles;
  static constexpr int kFeatures = kFeatureWarps * kRowTiles * kQuantTile;
  static constexpr int kSliceBytes = kTokens * kStageRowBytes;  // of a stage
  static constexpr int kStageBytes = kQuantSlices * kSliceBytes;
  static constexpr int kStages = kTokens > 16 ? 3 : 6;  // of tokens, in shared memory
  /// Of codes, in registers: 32 or more for int4 and int8 alike.
  static constexpr int kAhead = kRowTiles == 1 && kBits == 4 ? 4 : 2;
  static constexpr int kSumStride = kFeatures + kSumPadding;
  static constexpr int kSumBytes =
      static_cast<int>(sizeof(float)) * kQuantSlices * kTokens * kSumStride;
  static constexpr int kRowsAt = greatest(kStages * kStageBytes, kSumBytes);
  static constexpr int kSharedBytes = kRowsAt + kTokens * static_cast<int>(sizeof(void*));
  static_assert(kSharedBytes <= 99 << 10, "sm_86 has no more");
};

/// A warp's place: features of an expert, and a run of stages of k.
template <class T, class B>
struct QuantWarp {
  const QuantTask<T>& task;
  const ExpertTile& tile;
  int slice, feature_warp;
  int begin, count;  // stages of k

  __device__ QuantWarp(const QuantTask<T>& t, const ExpertTile& e)
      : task(t),
        tile(e),
        slice(warp_id() / kFeatureWarps),
        feature_warp(warp_id() % kFeatureWarps) {
    begin = static_cast<int>(slice_begin(task.units, slice)) * kStagesOfUnit;
    count = static_cast<int>(slice_begin(task.units, slice + 1)) * kStagesOfUnit - begin;
  }

  __device__ static const T** rows() {
    return reinterpret_cast<const T**>(shared_memory() + B::kRowsAt);
  }
  /// By all threads of a block: where the tile's tokens are.
  __device__ void find_rows() const {
    const int row = static_cast<int>(threadIdx.x);
    if (row < tile.rows) rows()[row] = task.pairs.token(tile.first + row);
  }
  __device__ char* tokens(int stage) const {
    return shared_memory() + stage % B::kStages * B::kStageBytes + slice * B::kSliceBytes;
  }
  /// By all warps of a slice. Tokens that aren't there stay as they are: nobody reads their sums.
  __device__ void load_tokens(int stage) const {
    const int thread = feature_warp * kWarp + lane_id();
    for (int i = thread; i < tile.rows * kStageChunks; i += kSliceThreads) {
      const int row = i / kStageChunks, chunk = i % kStageChunks;
      tiles::load_token_chunk(rows()[row], int64_t{begin + stage} * kQuantStage + chunk * 8, task.k,
                              task.pairs.x_vectors, tokens(stage) + stage_chunk_byte(row, chunk));
    }
  }

  /// To [slice][token][feature] in shared memory.
  template <int kRowTiles, int kTokenTiles>
  __device__ void put_sums(const GroupSums<kTokenTiles> (&sums)[kRowTiles], float* to) const {
    const auto [g, q] = lane_place();
    float* own = to + slice * B::kTokens * B::kSumStride + feature_warp * kRowTiles * kQuantTile;
    HEADRACE_UNROLL
    for (int i = 0; i < kRowTiles * kTokenTiles * 4; ++i) {
      const int r = i / (kTokenTiles * 4), t = i / 4 % kTokenTiles, c = i % 4;
      own[(8 * t + 2 * q + c % 2) * B::kSumStride + kQuantTile * r + g + c / 2 * 8] =
          sums[r].sums[t][c];
    }
  }
};

/// Adds the slices' sums, and writes what comes of them.
template <class B, class T>
__device__ void write_slices(float* sums, const ExpertTile& tile, int64_t first,
                             const LinearOutput<T, T>& out) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < tile.rows * B::kFeatures; i += kThreads) {
    float* at = sums + i / B::kFeatures * B::kSumStride + i % B::kFeatures;
    float total = 0.0f;
    HEADRACE_UNROLL
    for (int s = 0; s < kQuantSlices; ++s) total += at[s * B::kTokens * B::kSumStride];
    *at = total;
  }
  __syncthreads();
  write_sums<B::kFeatures>(sums, B::kSumStride, tile.rows, tile.first, first,
                           out.of_expert(tile.expert), thread, kThreads);
}

/// Warps are [kQuantSlices][kFeatureWarps]. Codes come to registers, several stages ahead; tokens
/// go through shared memory. Blocks that run together have the same features of different experts.
template <class T, int kBits, int kRowTiles, int kTokenTiles>
__global__ void __launch_bounds__(kThreads, kTokenTiles > 2 ? 1 : 2)
    grouped_quant_kernel(QuantTask<T> task, LinearOutput<T, T> out) {
  using B = Block<kBits, kRowTiles, kTokenTiles>;
  start_next();
  wait_for_previous();
  const ExpertTile tile = task.pairs.tiles[blockIdx.x];
  if (tile.rows == 0) return;
  const QuantWarp<T, B> warp(task, tile);
  const int64_t first = int64_t{blockIdx.y} * B::kFeatures;
  const uint8_t* weight = task.weight.tile(first / kQuantTile + warp.feature_warp * kRowTiles) +
                          tile.expert * task.pairs.expert_elements;
  StageCodes<kBits, kRowTiles> ahead[B::kAhead];
  HEADRACE_UNROLL
  for (int i = 0; i < B::kAhead; ++i) {
    if (i < warp.count) ahead[i].load(task.weight, weight, warp.begin + i);
  }
  warp.find_rows();
  __syncthreads();
  HEADRACE_UNROLL
  for (int s = 0; s < B::kStages - 1; ++s) {
    if (s < warp.count) warp.load_tokens(s);
    copy_async_commit();
  }

  RowZeros<T, kBits> zeros[kRowTiles];
  GroupSums<kTokenTiles> sums[kRowTiles];
  const int rounds = divide_up(task.units, kQuantSlices) * kStagesOfUnit;
  HEADRACE_NO_UNROLL
  for (int begin = 0; begin < rounds; begin += B::kAhead) {
    HEADRACE_UNROLL
    for (int i = 0; i < B::kAhead; ++i) {
      const int round = begin + i;
      if (round >= rounds) break;
      copy_async_wait<B::kStages - 2>();
      __syncthreads();
      if (round + B::kStages - 1 < warp.count) warp.load_tokens(round + B::kStages - 1);
      copy_async_commit();
      if (round >= warp.count) continue;
      multiply_quant_stage(task.weight, warp.begin + round, ahead[i], warp.tokens(round), zeros,
                           sums);
      const int next = round + B::kAhead;
      if (next < warp.count) ahead[i].load(task.weight, weight, warp.begin + next);
    }
  }
  copy_async_wait<0>();
  __syncthreads();
  auto* totals = reinterpret_cast<float*>(shared_memory());
  warp.put_sums(sums, totals);
  __syncthreads();
  write_slices<B>(totals, tile, first, out);
}

template <class T, int kBits, int kRowTiles, int kTokenTiles>
void run(const GroupedLinearArgs& args, Stream stream) {
  using B = Block<kBits, kRowTiles, kTokenTiles>;
  static_assert(kWeightRowUnit % B::kFeatures == 0 && B::kTokens <= kQuantTileRows);
  const QuantLayout layout{args.layout, args.quant};
  QuantTask<T> task{.pairs = grouped_task<T>(args),
                    .weight = view_of(layout, args.weight),
                    .k = args.layout.k,
                    .units = static_cast<int>(layout.units())};
  task.pairs.expert_elements = layout.bytes();
  launch("grouped_quant", grouped_quant_kernel<T, kBits, kRowTiles, kTokenTiles>,
         {.grid = {grid_size(args.num_tiles), grid_size(args.layout.stored_rows() / B::kFeatures)},
          .threads = kThreads,
          .shared_bytes = B::kSharedBytes,
          .overlaps = true},
         stream, task, grouped_output<T>(args));
}

}  // namespace

void grouped_quant(const GroupedLinearArgs& args, Stream stream) {
  HEADRACE_CHECK(args.layout.k <= 0x7fffffff, args.layout.k);
  HEADRACE_CHECK(args.tile_rows == 8 || args.tile_rows == 16 || args.tile_rows == kQuantTileRows,
                 args.tile_rows);
  with_half(args.dtype, [&](auto element) {
    using T = decltype(element);
    with_bool(args.quant.bits == 8, [&](auto wide) {
      constexpr int kBits = decltype(wide)::value ? 8 : 4;
      if (args.tile_rows == 8) return run<T, kBits, 1, 1>(args, stream);
      if (args.tile_rows == 16) return run<T, kBits, 1, 2>(args, stream);
      run<T, kBits, 2, 8>(args, stream);
    });
  });
}

}  // namespace headrace::cuda
