#include "cuda/device/wgmma.cuh"
#include "cuda/kernels/linear/linear_cluster.cuh"
#include "cuda/kernels/linear/linear_epilogue.cuh"
#include "cuda/kernels/linear/linear_kernels.h"

namespace headrace::cuda {
namespace {

constexpr int kUnit = kBoxColumns;  // of k
constexpr int kRowBytes = kUnit * 2;
constexpr int kConsumers = 128;
constexpr int kThreads = kConsumers + kWarp;  // and a warp that copies
constexpr int kBarrierBytes = 1024;           // keeps the stages aligned
constexpr int kGroupFeatures = 64;            // of a product

/// What a block works on. With 32 features the other half of its products is thrown away: weights
/// that are narrow reach more multiprocessors so, and bytes decide. kTiled: it has one of many
/// tiles of tokens, and may be one of a cluster; else all tokens.
template <int kFeatures_, int kTokens_, int kRoom, bool kTiled_ = false>
struct Shape {
  static constexpr bool kTiled = kTiled_;
  static constexpr int kFeatures = kFeatures_;
  static constexpr int kTokens = kTokens_;
  static constexpr int kUnits = kTokens <= 64 ? 2 : 1;  // of k in a stage
  // What products read behind the features is at rest, whatever it is.
  static constexpr int kTokenRows = greatest(kTokens, kGroupFeatures - kFeatures);
  static constexpr int kUnitBytes = (kFeatures + kTokenRows) * kRowBytes;
  static constexpr int kCopiedBytes = kUnits * (kFeatures + kTokens) * kRowBytes;
  static constexpr int kStageBytes = kUnits * kUnitBytes;
  static constexpr int kStages = kRoom / kStageBytes;
  static constexpr int kSumStride = kFeatures + 4;
  static constexpr int kSharedBytes =
      kBarrierBytes + greatest(kStages * kStageBytes, kTokens * kSumStride * 4);
  static_assert(kSharedBytes <= 227 << 10 && kStages >= 3 && kCopiedBytes <= kStageBytes);
};

// Two blocks of the smaller room fit a multiprocessor: the weights of the next linear arrive while
// this one ends. Where there are fewer blocks than multiprocessors, those left over do that.
constexpr int kSmallRoom = 104 << 10, kLargeRoom = 208 << 10;

struct StreamTask {
  int32_t units;  // of k
  int64_t rows;
  ClusterTiles tiles;
};

#if defined(HEADRACE_HOPPER)

template <class C>
using Pipe = StagePipe<C::kStages>;

/// Where the block is.
struct BlockPlace {
  ClusterPeers peers;
  TilePlace tile;
};

template <class C>
__device__ BlockPlace block_place(const ClusterTiles& tiles) {
  const auto block = static_cast<int32_t>(blockIdx.x);
  if constexpr (!C::kTiled) return {{}, {0, block}};
  const ClusterPeers peers = cluster_peers(tiles.cluster);
  return {peers, tile_place(tiles, block / tiles.cluster.size(), peers.rank)};
}

/// One thread's work: the weight of the first stages is under way before the kernel ahead has
/// ended.
template <class C>
__device__ void copy_stages(const void* weight_map, const void* x_map, const StreamTask& task,
                            const BlockPlace& place, Pipe<C>* pipe, char* stages) {
  const ClusterShape shape = C::kTiled ? task.tiles.cluster : ClusterShape{};
  const SharedBoxes weight = place.peers.weight(shape, weight_map, C::kFeatures);
  const SharedBoxes x = place.peers.tokens(shape, x_map, C::kTokens);
  const int32_t count = divide_up(task.units, C::kUnits);
  const auto at = [&](int32_t n, int32_t unit) {
    return stages + n % C::kStages * C::kStageBytes + unit * C::kUnitBytes;
  };
  // Behind the end of k copies give zeros, which add nothing.
  const auto copy_weight = [&](int32_t n) {
    uint64_t* full = &pipe->full[n % C::kStages];
    barrier_expect_bytes(full, C::kCopiedBytes);
    HEADRACE_UNROLL
    for (int32_t unit = 0; unit < C::kUnits; ++unit) {
      weight.copy(at(n, unit), (n * C::kUnits + unit) * kUnit,
                  place.tile.feature_tile * C::kFeatures, full);
    }
  };
  const auto copy_tokens = [&](int32_t n) {
    HEADRACE_UNROLL
    for (int32_t unit = 0; unit < C::kUnits; ++unit) {
      x.copy(at(n, unit) + C::kFeatures * kRowBytes, (n * C::kUnits + unit) * kUnit,
             place.tile.token_tile * C::kTokens, &pipe->full[n % C::kStages]);
    }
  };
  const int32_t ahead = least(count, C::kStages);
  for (int32_t n = 0; n < ahead; ++n) copy_weight(n);
  wait_for_previous();
  for (int32_t n = 0; n < ahead; ++n) copy_tokens(n);
  for (int32_t n = ahead; n < count; ++n) {
    barrier_wait(&pipe->empty[n % C::kStages], static_cast<uint32_t>(n / C::kStages - 1) & 1);
    copy_weight(n);
    copy_tokens(n);
  }
}

/// A stage is freed when the next one's products have begun and its own are over.
template <class T, class C>
__device__ void multiply_stages(const StreamTask& task, const ClusterPeers& peers, Pipe<C>* pipe,
                                const char* stages, float (&sums)[C::kTokens / 2]) {
  const int32_t count = divide_up(task.units, C::kUnits);
  HEADRACE_NO_UNROLL
  for (int32_t n = 0; n < count; ++n) {
    barrier_wait(&pipe->full[n % C::kStages], static_cast<uint32_t>(n / C::kStages) & 1);
    const char* stage = stages + n % C::kStages * C::kStageBytes;
    products_fence();
    HEADRACE_UNROLL
    for (int step = 0; step < C::kUnits * kUnit / 16; ++step) {
      const char* tile = stage + step / (kUnit / 16) * C::kUnitBytes;
      const auto k_bytes = static_cast<uint32_t>(step % (kUnit / 16) * 32);
      wgmma_64xk16<T, C::kTokens>(sums, tile_descriptor(tile, k_bytes),
                                  tile_descriptor(tile + C::kFeatures * kRowBytes, k_bytes), true);
    }
    products_commit();
    products_wait<1>();
    if (n == 0) continue;
    if constexpr (C::kTiled) {
      free_shared_stage(pipe, static_cast<uint32_t>((n - 1) % C::kStages), peers.all());
    } else if (lane_id() == 0) {
      barrier_arrive(&pipe->empty[(n - 1) % C::kStages]);
    }
  }
  products_wait<0>();
  hold_registers(sums);
}

/// Products that are over, by way of the stages, which hold no more operands.
template <class C, class T, class Out>
__device__ void write_tile(const float (&sums)[C::kTokens / 2], const StreamTask& task,
                           const TilePlace& place, char* stages, const LinearOutput<T, Out>& out) {
  named_barrier(1, kConsumers);
  auto* tile = reinterpret_cast<float*>(stages);
  const int feature = warp_id() * 16 + lane_id() / 4;
  if (warp_id() * 16 < C::kFeatures) {
    HEADRACE_UNROLL
    for (int i = 0; i < C::kTokens / 2; ++i) {
      const int token = i / 4 * 8 + lane_id() % 4 * 2 + i % 2;
      tile[token * C::kSumStride + feature + i / 2 % 2 * 8] = sums[i];
    }
  }
  named_barrier(1, kConsumers);
  wait_for_previous();
  const int64_t first_row = int64_t{place.token_tile} * C::kTokens;
  const auto rows =
      static_cast<int>(least<int64_t>(C::kTokens, greatest<int64_t>(task.rows - first_row, 0)));
  write_sums<C::kFeatures>(tile, C::kSumStride, rows, first_row,
                           int64_t{place.feature_tile} * C::kFeatures, out,
                           static_cast<int>(threadIdx.x), kConsumers);
}

#endif

template <class T, class Out, class C>
__global__ void __launch_bounds__(kThreads)
    linear_stream_kernel(const __grid_constant__ TensorMap weight,
                         const __grid_constant__ TensorMap x, StreamTask task,
                         LinearOutput<T, Out> out) {
#if defined(HEADRACE_HOPPER)
  start_next();
  auto* pipe = reinterpret_cast<Pipe<C>*>(shared_memory());
  static_assert(sizeof(Pipe<C>) <= kBarrierBytes);
  char* stages = shared_memory() + kBarrierBytes;
  const BlockPlace place = block_place<C>(task.tiles);
  if (threadIdx.x == 0) {
    pipe->init(stage_readers(C::kTiled ? task.tiles.cluster : ClusterShape{}, kConsumers / kWarp));
  }
  if constexpr (C::kTiled) {
    cluster_sync();
  } else {
    __syncthreads();
  }
  if (threadIdx.x < kConsumers) {
    float sums[C::kTokens / 2] = {};
    multiply_stages<T, C>(task, place.peers, pipe, stages, sums);
    write_tile<C>(sums, task, place.tile, stages, out);
  } else if (threadIdx.x == kConsumers) {
    copy_stages<C>(&weight, &x, task, place, pipe, stages);
  }
  if constexpr (C::kTiled) cluster_sync();  // nobody frees a stage of a block that is gone
#endif
}

template <class T, class Out, class C>
void run(const LinearArgs& args, const ClusterShape& cluster, Stream stream) {
  const WeightLayout& layout = args.layout;
  const StreamTask task{
      static_cast<int32_t>(layout.stride() / kUnit), args.x.rows,
      cluster_tiles({true, C::kTokens, C::kFeatures, cluster}, args.x.rows, layout.stored_rows())};
  const TensorMap weight =
      make_tensor_map({args.weight, layout.stored_rows(), layout.stride(), layout.stride()},
                      args.dtype, C::kFeatures / cluster.tokens);
  launch("linear_stream", linear_stream_kernel<T, Out, C>,
         {.grid = {grid_size(int64_t{task.tiles.tokens} * task.tiles.features)},
          .threads = kThreads,
          .shared_bytes = C::kSharedBytes,
          .overlaps = true,
          .cluster = static_cast<unsigned>(cluster.size())},
         stream, weight, make_tensor_map(args.x, args.dtype, C::kTokens / cluster.features), task,
         linear_output<T, Out>(args));
}

/// All tokens in a block.
template <class T, class Out, int kTokens>
void run_few(const LinearArgs& args, Stream stream) {
  const int64_t blocks = args.layout.stored_rows() / kGroupFeatures;
  if (2 * blocks <= args.multiprocessors && kTokens <= 16) {
    run<T, Out, Shape<32, kTokens, kLargeRoom>>(args, {}, stream);
  } else if (blocks <= args.multiprocessors) {
    run<T, Out, Shape<64, kTokens, kLargeRoom>>(args, {}, stream);
  } else {
    run<T, Out, Shape<64, kTokens, kSmallRoom>>(args, {}, stream);
  }
}

}  // namespace

void linear_stream(const LinearArgs& args, Stream stream) {
  HEADRACE_CHECK(args.x.rows <= kMaxStreamRows, args.x.rows);
  with_linear_types(args, [&](auto element, auto result) {
    using T = decltype(element);
    using Out = decltype(result);
    const int64_t rows = args.x.rows;
    if (rows <= 8) return run_few<T, Out, 8>(args, stream);
    if (rows <= 16) return run_few<T, Out, 16>(args, stream);
    if (rows <= 32) return run_few<T, Out, 32>(args, stream);
    run_few<T, Out, 64>(args, stream);
  });
}

void linear_stream_tiles(const LinearArgs& args, const LinearPlan& plan, Stream stream) {
  HEADRACE_CHECK(plan.streams && plan.features == kGroupFeatures, plan.features);
  with_linear_types(args, [&](auto element, auto result) {
    using T = decltype(element);
    using Out = decltype(result);
    if (plan.tokens == 64) {
      return run<T, Out, Shape<kGroupFeatures, 64, kLargeRoom, true>>(args, plan.cluster, stream);
    }
    HEADRACE_CHECK(plan.tokens == 128, plan.tokens);
    run<T, Out, Shape<kGroupFeatures, 128, kLargeRoom, true>>(args, plan.cluster, stream);
  });
}

}  // namespace headrace::cuda
