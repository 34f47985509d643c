#include <atomic>

#include "cuda/device/wgmma.cuh"
#include "cuda/kernels/linear/linear_cluster.cuh"
#include "cuda/kernels/linear/linear_epilogue.cuh"
#include "cuda/kernels/linear/linear_kernels.h"

namespace headrace::cuda {
namespace {

constexpr int kTokens = 128;        // of a block's tile: 64 for each of two warpgroups
constexpr int kUnit = kBoxColumns;  // of k
constexpr int kRowBytes = kUnit * 2;
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
  static constexpr int kStages = ((227 << 10) - kBarrierBytes - 2 * kResultBytes) / kStageBytes;
  static constexpr int kSharedBytes = kBarrierBytes + kStages * kStageBytes + 2 * kResultBytes;
  static_assert(kStages >= 4);
};

struct WgmmaTask {
  int32_t units;  // of k
  int64_t rows;
  ClusterTiles tiles;
};

#if defined(HEADRACE_HOPPER)

template <class C>
using Pipe = StagePipe<C::kStages>;

/// What the block works on, in turn: tile n of its cluster.
class BlockTiles {
 public:
  __device__ BlockTiles(const ClusterTiles& tiles, int32_t rank)
      : tiles_(tiles),
        rank_(rank),
        first_(static_cast<int32_t>(blockIdx.x) / tiles.cluster.size()),
        step_(static_cast<int32_t>(gridDim.x) / tiles.cluster.size()),
        end_(tiles.tokens * tiles.features / tiles.cluster.size()) {}

  /// Calls f(tile), a TilePlace.
  template <class F>
  __device__ void for_each(F&& f) const {
    HEADRACE_NO_UNROLL
    for (int32_t cluster = first_; cluster < end_; cluster += step_) {
      f(tile_place(tiles_, cluster, rank_));
    }
  }
  __device__ TilePlace first() const { return tile_place(tiles_, first_, rank_); }

 private:
  const ClusterTiles& tiles_;
  int32_t rank_, first_, step_, end_;
};

/// Fills stage after stage as all blocks free them: one thread's work. The first weights are on
/// their way while earlier kernels end.
template <class C>
__device__ void copy_tiles(const void* weight_map, const void* x_map, const WgmmaTask& task,
                           const ClusterPeers& peers, Pipe<C>* pipe, char* stages) {
  const SharedBoxes weight = peers.weight(task.tiles.cluster, weight_map, C::kFeatures);
  const SharedBoxes x = peers.tokens(task.tiles.cluster, x_map, kTokens);
  const auto copy_weight = [&](uint32_t n, const TilePlace& place, int32_t unit) {
    const uint32_t stage = n % C::kStages;
    barrier_expect_bytes(&pipe->full[stage], C::kStageBytes);
    weight.copy(stages + stage * C::kStageBytes + kTokens * kRowBytes, unit * kUnit,
                place.feature_tile * C::kFeatures, &pipe->full[stage]);
  };
  const BlockTiles tiles(task.tiles, peers.rank);
  const auto ahead = static_cast<uint32_t>(least<int32_t>(task.units, C::kStages));
  HEADRACE_NO_UNROLL
  for (uint32_t n = 0; n < ahead; ++n) copy_weight(n, tiles.first(), static_cast<int32_t>(n));
  wait_for_previous();
  uint32_t n = 0;
  tiles.for_each([&](const TilePlace& place) {
    const int32_t first_row = tile_tokens(task.rows, place.token_tile, kTokens).first;
    HEADRACE_NO_UNROLL
    for (int32_t unit = 0; unit < task.units; ++unit, ++n) {
      const uint32_t stage = n % C::kStages;
      if (n >= C::kStages) barrier_wait(&pipe->empty[stage], (n / C::kStages - 1) & 1);
      if (n >= ahead) copy_weight(n, place, unit);
      x.copy(stages + stage * C::kStageBytes, unit * kUnit, first_row, &pipe->full[stage]);
    }
  });
}

/// A warpgroup's 64 tokens of a tile. A stage is freed when the next one's products have begun and
/// its own are over. `n`: stages of the block so far; `blocks`: who copies into them.
template <class T, class C>
__device__ void multiply_tile(const WgmmaTask& task, int group, uint32_t blocks, Pipe<C>* pipe,
                              const char* stages, uint32_t& n, float (&sums)[C::kFeatures / 2]) {
  HEADRACE_NO_UNROLL
  for (int32_t unit = 0; unit < task.units; ++unit, ++n) {
    barrier_wait(&pipe->full[n % C::kStages], n / C::kStages & 1);
    const char* tile = stages + n % C::kStages * C::kStageBytes;
    products_fence();
    HEADRACE_UNROLL
    for (uint32_t k = 0; k < kUnit / 16; ++k) {
      wgmma_64xk16<T, C::kFeatures>(
          sums, tile_descriptor(tile + group * kGroupRows * kRowBytes, k * 32),
          tile_descriptor(tile + kTokens * kRowBytes, k * 32), unit > 0 || k > 0);
    }
    products_commit();
    products_wait<1>();
    if (unit > 0) free_shared_stage(pipe, (n - 1) % C::kStages, blocks);
  }
  products_wait<0>();
  hold_registers(sums);
  free_shared_stage(pipe, (n - 1) % C::kStages, blocks);
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
  if (out.gate_mul) {
    const SiluGate silu;
    HEADRACE_UNROLL
    for (int i = 0; i < kGroups; ++i) {  // pairs of groups x 2 rows
      const int pair = i / 2, r = i % 2;
      const float* gate = &sums[4 * (first / kGroup + 2 * pair) + 2 * r];
      const float* up = gate + 4;
      store_pair<Out>(results, row + 8 * r, pair * kGroup + 2 * q, out.gated(silu, gate[0], up[0]),
                      out.gated(silu, gate[1], up[1]));
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
  const int shift = out.gate_mul ? 1 : 0;
  for (int i = thread; i < rows * (kGroups >> shift); i += kGroupThreads) {
    const int row = (i << shift) / kGroups, group = i - row * (kGroups >> shift);
    const auto* from =
        reinterpret_cast<const Out*>(results + row * kResultRowBytes) + group * kGroup;
    float values[kGroup];
    load_group(from, values);
    if (out.gate_mul) {
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

/// Of a tile's features, as many as fit into a group's results and divide them. Gate and up are
/// groups side by side.
template <class Out, class C>
constexpr int columns_at_a_time() {
  int columns = least(256 / static_cast<int>(sizeof(Out)), C::kFeatures);
  while (C::kFeatures % columns != 0) columns -= 2 * kGroup;
  return columns;
}

/// A group's part of a tile.
template <class C, class T, class Out>
__device__ void write_tile(float (&sums)[C::kFeatures / 2], const WgmmaTask& task,
                           const TilePlace& place, int group, char* results,
                           const LinearOutput<T, Out>& out) {
  constexpr int kColumns = columns_at_a_time<Out, C>();
  const TileTokens tokens = tile_tokens(task.rows, place.token_tile, kTokens);
  const int begin = greatest(tokens.begin - group * kGroupRows, 0);  // of the group's rows
  const int rows = least(tokens.end - group * kGroupRows, kGroupRows) - begin;
  const int64_t first_row = int64_t{tokens.first} + group * kGroupRows + begin;
  const int64_t first_feature = int64_t{place.feature_tile} * C::kFeatures;
  if (out.bias != nullptr) add_bias(first_feature, out, sums);
  HEADRACE_UNROLL
  for (int first = 0; first < C::kFeatures; first += kColumns) {
    named_barrier(1 + group, kGroupThreads);  // the results before have been read
    stage_results<kColumns>(sums, first, out, results);
    named_barrier(1 + group, kGroupThreads);
    write_results<kColumns>(results + begin * kResultRowBytes, rows, first_row,
                            first_feature + first, out);
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
  auto* pipe = reinterpret_cast<Pipe<C>*>(shared_memory());
  static_assert(sizeof(Pipe<C>) <= kBarrierBytes);
  char* stages = shared_memory() + kBarrierBytes;
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads - 1;
  const ClusterPeers peers = cluster_peers(task.tiles.cluster);
  if (threadIdx.x == 0) {
    pipe->init(stage_readers(task.tiles.cluster, 2 * kGroupThreads / kWarp));
  }
  cluster_sync();
  if (group < 0) {
    give_registers<40>();
    if (threadIdx.x == 0) {
      prefetch_map(&weight);
      prefetch_map(&x);
      copy_tiles<C>(&weight, &x, task, peers, pipe, stages);
    }
  } else {
    take_registers<232>();
    wait_for_previous();
    char* results = stages + C::kStages * C::kStageBytes + group * kResultBytes;
    uint32_t n = 0;
    BlockTiles(task.tiles, peers.rank).for_each([&](const TilePlace& place) {
      float sums[C::kFeatures / 2] = {};
      multiply_tile<T, C>(task, group, peers.all(), pipe, stages, n, sums);
      write_tile<C>(sums, task, place, group, results, out);
    });
  }
  cluster_sync();  // nobody frees a stage of a block that is gone
#endif
}

template <class T, class Out, class C>
void run(const LinearArgs& args, const LinearPlan& plan, int64_t blocks, Stream stream) {
  const WeightLayout& layout = args.layout;
  const WgmmaTask task{static_cast<int32_t>(layout.stride() / kUnit), args.x.rows,
                       cluster_tiles(plan, args.x.rows, layout.stored_rows())};
  const TensorMap weight =
      make_tensor_map({args.weight, layout.stored_rows(), layout.stride(), layout.stride()},
                      args.dtype, C::kFeatures / plan.cluster.tokens);
  launch("linear_wgmma", linear_wgmma_kernel<T, Out, C>,
         {.grid = {grid_size(least(greatest<int64_t>(blocks, plan.cluster.size()),
                                   int64_t{task.tiles.tokens} * task.tiles.features))},
          .threads = kThreads,
          .shared_bytes = C::kSharedBytes,
          .overlaps = true,
          .cluster = static_cast<unsigned>(plan.cluster.size())},
         stream, weight, make_tensor_map(args.x, args.dtype, kTokens / plan.cluster.features), task,
         linear_output<T, Out>(args));
}

#if !defined(HEADRACE_CUDA_EMULATION)

/// 0 = no such clusters, or nobody knows.
int32_t ask_for_quads(Stream stream) {
  using Largest = Tile<256>;
  auto* const kernel = linear_wgmma_kernel<Bf16, Bf16, Largest>;
  static_cast<void>(prepare_kernel(reinterpret_cast<const void*>(kernel), stream));
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {4, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(4);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = Largest::kSharedBytes;
  config.attrs = &cluster;
  config.numAttrs = 1;
  int found = 0;
  const bool known = cudaOccupancyMaxActiveClusters(&found, kernel, &config) == cudaSuccess;
  return known ? found : 0;
}

#endif

}  // namespace

ClusterRoom cluster_room(int32_t multiprocessors, [[maybe_unused]] Stream stream) {
#if defined(HEADRACE_CUDA_EMULATION)
  return {multiprocessors, multiprocessors / 4};
#else
  constexpr int kDevices = 64;
  static std::array<std::atomic<int32_t>, kDevices> known;  // and 1; 0 = not asked yet
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device >= kDevices) return {multiprocessors, 0};
  std::atomic<int32_t>& quads = known[static_cast<size_t>(device)];
  if (quads.load() == 0) quads.store(1 + ask_for_quads(stream));
  return {multiprocessors, least(multiprocessors / 4, quads.load() - 1)};
#endif
}

void linear_wgmma(const LinearArgs& args, const LinearPlan& plan, const ClusterRoom& room,
                  Stream stream) {
  HEADRACE_CHECK(!plan.streams && plan.tokens == kTokens, plan.tokens);
  HEADRACE_CHECK(wgmma_takes_gate(args));
  const int64_t blocks = room.blocks(plan.cluster.size());
  with_linear_types(args, [&](auto element, auto result) {
    using T = decltype(element);
    using Out = decltype(result);
    switch (plan.features) {
      case 128:
        return run<T, Out, Tile<128>>(args, plan, blocks, stream);
      case 192:
        return run<T, Out, Tile<192>>(args, plan, blocks, stream);
      case 224:
        return run<T, Out, Tile<224>>(args, plan, blocks, stream);
      default:
        HEADRACE_CHECK(plan.features == 256, plan.features);
        return run<T, Out, Tile<256>>(args, plan, blocks, stream);
    }
  });
}

}  // namespace headrace::cuda
