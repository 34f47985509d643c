#include "cuda/device/cluster.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/kernels/linear/linear_epilogue.cuh"
#include "cuda/kernels/linear/linear_kernels.h"
#include "cuda/kernels/linear/tensor_map.h"

namespace headrace::cuda {
namespace {

constexpr int kTokens = 128;        // of a block's tile: 64 for each of two warpgroups
constexpr int kUnit = kBoxColumns;  // of k
constexpr int kRowBytes = kUnit * 2;
constexpr int kStages = 4;
constexpr int kGroupThreads = 128;
constexpr int kThreads = 3 * kGroupThreads;  // one group copies, two multiply
constexpr int kGroupRows = 64;
constexpr int kBarrierBytes = 1024;  // keeps the stages aligned
// A group's results on their way to the output, while the next tile's stages fill: rows 16 bytes
// off a multiple of 128, so that both ways of access meet every bank once.
constexpr int kResultRowBytes = 256 + 16;
constexpr int kResultBytes = kGroupRows * kResultRowBytes;

/// kFeatures: the products' n.
template <int kFeatures_>
struct Tile {
  static constexpr int kFeatures = kFeatures_;
  static constexpr int kStageBytes = (kTokens + kFeatures) * kRowBytes;
  static constexpr int kSharedBytes = kBarrierBytes + kStages * kStageBytes + 2 * kResultBytes;
  static_assert(kSharedBytes <= 227 << 10);
};

// Two blocks share a tile of the weight, each of which copies half of it for both.
constexpr int kCluster = 2;

struct WgmmaTask {
  int32_t units;  // of k
  int64_t rows;
  int32_t feature_tiles, token_tiles;  // token_tiles: a multiple of kCluster
};

/// Work of the blocks in turn. Clusters take neighbouring token tiles of one feature tile; tiles
/// that run together share weights and rows in the L2 cache.
struct TilePlace {
  int64_t first_token, first_feature;
};

template <class C>
__device__ TilePlace tile_place(const WgmmaTask& task, int32_t tile) {
  constexpr int32_t kShared = 16;  // token tiles that go through all features together
  const int32_t span = kShared * task.feature_tiles;
  const int32_t first = tile / span * kShared;
  const int32_t width = least(kShared, task.token_tiles - first);
  const int32_t token = first + tile % span % width, feature = tile % span / width;
  return {int64_t{token} * kTokens, int64_t{feature} * C::kFeatures};
}

#if defined(HEADRACE_HOPPER)

using Pipe = StagePipe<kStages>;

/// Fills stage after stage as both blocks free them: one thread's work. The first weights are on
/// their way while earlier kernels end.
template <class C>
__device__ void copy_tiles(const void* weight, const void* x, const WgmmaTask& task, Pipe* pipe,
                           char* stages) {
  const uint32_t rank = kCluster > 1 ? cluster_rank() : 0;
  constexpr int kPart = C::kFeatures / kCluster;  // of the weight's tile
  constexpr auto kAll = static_cast<uint16_t>((1 << kCluster) - 1);
  const int32_t tiles = task.feature_tiles * task.token_tiles;
  const auto copy_weight = [&](uint32_t n, const TilePlace& place, int32_t unit) {
    const uint32_t stage = n % kStages;
    const auto feature = static_cast<int32_t>(place.first_feature + rank * kPart);
    barrier_expect_bytes(&pipe->full[stage], C::kStageBytes);
    copy_box_to_cluster(stages + stage * C::kStageBytes + (kTokens + rank * kPart) * kRowBytes,
                        weight, unit * kUnit, feature, &pipe->full[stage], kAll);
  };
  const auto ahead = static_cast<uint32_t>(least<int32_t>(task.units, kStages));
  const TilePlace first = tile_place<C>(task, static_cast<int32_t>(blockIdx.x));
  for (uint32_t n = 0; n < ahead; ++n) copy_weight(n, first, static_cast<int32_t>(n));
  wait_for_previous();
  uint32_t n = 0;
  for (auto tile = static_cast<int32_t>(blockIdx.x); tile < tiles;
       tile += static_cast<int32_t>(gridDim.x)) {
    const TilePlace place = tile_place<C>(task, tile);
    for (int32_t unit = 0; unit < task.units; ++unit, ++n) {
      const uint32_t stage = n % kStages;
      if (n >= kStages) barrier_wait(&pipe->empty[stage], (n / kStages - 1) & 1);
      if (n >= ahead) copy_weight(n, place, unit);
      copy_box(stages + stage * C::kStageBytes, x, unit * kUnit,
               static_cast<int32_t>(place.first_token), &pipe->full[stage]);
    }
  }
}

/// In every block that copies into it.
__device__ inline void free_stage(Pipe* pipe, uint32_t n) {
  if (lane_id() < kCluster) {
    barrier_arrive_at(&pipe->empty[n % kStages], static_cast<uint32_t>(lane_id()));
  }
}

/// A warpgroup's 64 tokens of a tile. A stage is freed when the next one's products have begun and
/// its own are over. `n`: stages of the block so far.
template <class T, class C>
__device__ void multiply_tile(const WgmmaTask& task, int group, Pipe* pipe, const char* stages,
                              uint32_t& n, float (&sums)[C::kFeatures / 2]) {
  HEADRACE_NO_UNROLL
  for (int32_t unit = 0; unit < task.units; ++unit, ++n) {
    barrier_wait(&pipe->full[n % kStages], n / kStages & 1);
    const char* tile = stages + n % kStages * C::kStageBytes;
    products_fence();
    HEADRACE_UNROLL
    for (uint32_t k = 0; k < kUnit / 16; ++k) {
      wgmma_64xk16<T, C::kFeatures>(
          sums, tile_descriptor(tile + group * kGroupRows * kRowBytes, k * 32),
          tile_descriptor(tile + kTokens * kRowBytes, k * 32), unit > 0 || k > 0);
    }
    products_commit();
    products_wait<1>();
    if (unit > 0) free_stage(pipe, n - 1);
  }
  products_wait<0>();
  hold_registers(sums);
  free_stage(pipe, n - 1);
}

/// A lane has two neighbouring features of two rows of each group of 8.
template <int kSums, class T, class Out>
__device__ void add_bias(int64_t first_stored, const LinearOutput<T, Out>& out,
                         float (&sums)[kSums]) {
  HEADRACE_UNROLL
  for (int i = 0; i < kSums; ++i) {
    const int64_t stored = first_stored + i / 4 * kGroup + lane_id() % 4 * 2 + i % 2;
    if (out.column_of(stored) < out.width())
      sums[i] = out.with_bias(sums[i], out.feature_of(stored));
  }
}

template <class Out>
__device__ inline void store_pair(char* results, int row, int column, float low, float high) {
  auto* to = reinterpret_cast<Out*>(results + row * kResultRowBytes) + column;
  if constexpr (sizeof(Out) == 2) {
    *reinterpret_cast<uint32_t*>(to) = pack_pair<Out>(low, high);
  } else {
    *reinterpret_cast<float2*>(to) = {low, high};
  }
}

/// Rounds the lane's results [first, first + kColumns) of the group's 64 rows into shared memory.
template <int kColumns, int kSums, class T, class Out>
__device__ void stage_results(const float (&sums)[kSums], int first,
                              const LinearOutput<T, Out>& out, char* results) {
  const int row = warp_id() % 4 * 16 + lane_id() / 4, q = lane_id() % 4;
  constexpr int kGroups = kColumns / kGroup;
  if (out.silu_mul) {
    HEADRACE_UNROLL
    for (int i = 0; i < kGroups; ++i) {  // pairs of groups x 2 rows
      const int pair = i / 2, r = i % 2;
      const float* gate = &sums[4 * (first / kGroup + 2 * pair) + 2 * r];
      const float* up = gate + 4;
      store_pair<Out>(results, row + 8 * r, pair * kGroup + 2 * q, out.gated(gate[0], up[0]),
                      out.gated(gate[1], up[1]));
    }
    return;
  }
  HEADRACE_UNROLL
  for (int i = 0; i < 2 * kGroups; ++i) {
    const float* own = &sums[4 * (first / kGroup + i / 2) + 2 * (i % 2)];
    store_pair<Out>(results, row + 8 * (i % 2), i / 2 * kGroup + 2 * q, own[0], own[1]);
  }
}

/// From shared memory to the output, with the residual. By a group's threads.
template <int kColumns, class T, class Out>
__device__ void write_results(const char* results, int rows, int64_t first_row,
                              int64_t first_stored, const LinearOutput<T, Out>& out) {
  constexpr int kGroups = kColumns / kGroup;
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  const int shift = out.silu_mul ? 1 : 0;
  for (int i = thread; i < rows * (kGroups >> shift); i += kGroupThreads) {
    const int row = (i << shift) / kGroups, group = i & ((kGroups >> shift) - 1);
    const auto* from =
        reinterpret_cast<const Out*>(results + row * kResultRowBytes) + group * kGroup;
    float values[kGroup];
    load_group(from, values);
    if (out.silu_mul) {
      const int64_t column = first_stored / 2 + group * kGroup;
      if (column < out.width()) out.store_group(first_row + row, column, values);
      continue;
    }
    const int64_t stored = first_stored + group * kGroup, column = out.column_of(stored);
    if (column + kGroup <= out.width()) {
      out.store_group(first_row + row, out.feature_of(stored), values);
      continue;
    }
    HEADRACE_UNROLL
    for (int j = 0; j < kGroup; ++j) {
      if (column + j < out.width()) {
        out.store(first_row + row, out.feature_of(stored) + j, values[j]);
      }
    }
  }
}

/// A group's part of a tile.
template <class C, class T, class Out>
__device__ void write_tile(float (&sums)[C::kFeatures / 2], const WgmmaTask& task,
                           const TilePlace& place, int group, char* results,
                           const LinearOutput<T, Out>& out) {
  constexpr int kColumns =  // that fit at a time
      least(256 / static_cast<int>(sizeof(Out)), C::kFeatures);
  const int64_t first_row = place.first_token + group * kGroupRows;
  const int rows =
      static_cast<int>(greatest<int64_t>(least<int64_t>(kGroupRows, task.rows - first_row), 0));
  if (out.bias != nullptr) add_bias(place.first_feature, out, sums);
  HEADRACE_UNROLL
  for (int first = 0; first < C::kFeatures; first += kColumns) {
    named_barrier(1 + group, kGroupThreads);  // the results before have been read
    stage_results<kColumns>(sums, first, out, results);
    named_barrier(1 + group, kGroupThreads);
    write_results<kColumns>(results, rows, first_row, place.first_feature + first, out);
  }
}

#endif

template <class T, class Out, class C>
__global__ void __launch_bounds__(kThreads, 1)
    linear_wgmma_kernel(const __grid_constant__ TensorMap weight,
                        const __grid_constant__ TensorMap x, WgmmaTask task,
                        LinearOutput<T, Out> out) {
#if defined(HEADRACE_HOPPER)
  start_next();
  auto* pipe = reinterpret_cast<Pipe*>(shared_memory());
  char* stages = shared_memory() + kBarrierBytes;
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads - 1;
  if (threadIdx.x == 0) pipe->init(2 * kGroupThreads / kWarp * kCluster);
  cluster_sync();
  if (group < 0) {
    give_registers<40>();
    if (threadIdx.x == 0) {
      prefetch_map(&weight);
      prefetch_map(&x);
      copy_tiles<C>(&weight, &x, task, pipe, stages);
    }
  } else {
    take_registers<232>();
    wait_for_previous();
    char* results = stages + kStages * C::kStageBytes + group * kResultBytes;
    const int32_t tiles = task.feature_tiles * task.token_tiles;
    uint32_t n = 0;
    HEADRACE_NO_UNROLL
    for (auto tile = static_cast<int32_t>(blockIdx.x); tile < tiles;
         tile += static_cast<int32_t>(gridDim.x)) {
      float sums[C::kFeatures / 2] = {};
      multiply_tile<T, C>(task, group, pipe, stages, n, sums);
      write_tile<C>(sums, task, tile_place<C>(task, tile), group, results, out);
    }
  }
  // Nobody frees a stage of a block that is gone.
  if constexpr (kCluster > 1) cluster_sync();
#endif
}

template <class T, class Out, class C>
void run(const LinearArgs& args, Stream stream) {
  const WeightLayout& layout = args.layout;
  const int64_t token_tiles = divide_up<int64_t>(args.x.rows, kTokens * kCluster) * kCluster;
  const int64_t feature_tiles = divide_up<int64_t>(layout.stored_rows(), C::kFeatures);
  HEADRACE_CHECK(token_tiles * feature_tiles <= 0x7fffffff, token_tiles, " x ", feature_tiles);
  const WgmmaTask task{static_cast<int32_t>(layout.stride() / kUnit), args.x.rows,
                       static_cast<int32_t>(feature_tiles), static_cast<int32_t>(token_tiles)};
  const TensorMap weight =
      make_tensor_map({args.weight, layout.stored_rows(), layout.stride(), layout.stride()},
                      args.dtype, C::kFeatures / kCluster);
  const int64_t blocks = args.multiprocessors / kCluster * kCluster;
  launch(
      "linear_wgmma", linear_wgmma_kernel<T, Out, C>,
      {.grid = {grid_size(least(greatest<int64_t>(blocks, kCluster), token_tiles * feature_tiles))},
       .threads = kThreads,
       .shared_bytes = C::kSharedBytes,
       .overlaps = true,
       .cluster = kCluster},
      stream, weight, make_tensor_map(args.x, args.dtype, kTokens), task,
      linear_output<T, Out>(args));
}

}  // namespace

void linear_wgmma(const LinearArgs& args, Stream stream) {
  with_linear_types(args, [&](auto element, auto result) {
    using T = decltype(element);
    using Out = decltype(result);
    // Tiles as large as leave most multiprocessors one.
    const int64_t columns = args.layout.stored_rows() * divide_up<int64_t>(args.x.rows, kTokens);
    if (columns <= int64_t{64} * args.multiprocessors) {
      run<T, Out, Tile<64>>(args, stream);
    } else if (columns <= int64_t{256} * args.multiprocessors) {
      run<T, Out, Tile<128>>(args, stream);
    } else {
      run<T, Out, Tile<256>>(args, stream);
    }
  });
}

}  // namespace headrace::cuda
