#include "cuda/device/hopper.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/kernels/linear_epilogue.cuh"
#include "cuda/kernels/linear_kernels.h"
#include "cuda/kernels/tensor_map.h"

namespace headrace::cuda {
namespace {

constexpr int kFeatures = 128;      // of a block's tile: 64 for each of two warpgroups
constexpr int kUnit = kBoxColumns;  // of k
constexpr int kRowBytes = kUnit * 2;
constexpr int kStages = 4;
constexpr int kGroupThreads = 128;
constexpr int kThreads = 3 * kGroupThreads;  // one group copies, two multiply
constexpr int kSumStride = kFeatures + 4;

constexpr int stage_bytes(int tokens) { return (kFeatures + tokens) * kRowBytes; }
constexpr int kBarrierBytes = 1024;  // keeps the stages aligned

constexpr size_t shared_bytes(int tokens) {
  const size_t stages = static_cast<size_t>(kStages * stage_bytes(tokens));
  return kBarrierBytes + greatest(stages, sizeof(float) * static_cast<size_t>(tokens) * kSumStride);
}
static_assert(shared_bytes(256) <= 227 << 10);

struct WgmmaTask {
  int32_t units;  // of k
  int64_t rows, feature_tiles, token_tiles;
};

#if defined(HEADRACE_HOPPER)

struct Pipe {
  uint64_t full[kStages];
  uint64_t empty[kStages];
};

/// Fills stage after stage as the consumers free them: one thread's work.
template <int kTokens>
__device__ void copy_tiles(const void* weight, const void* x, const WgmmaTask& task,
                           int32_t first_feature, int32_t first_token, Pipe* pipe, char* stages) {
  for (int32_t unit = 0; unit < task.units; ++unit) {
    const int stage = unit % kStages;
    const uint32_t round = static_cast<uint32_t>(unit / kStages);
    if (round > 0) barrier_wait(&pipe->empty[stage], (round - 1) & 1);
    char* to = stages + stage * stage_bytes(kTokens);
    barrier_expect_bytes(&pipe->full[stage], stage_bytes(kTokens));
    copy_box(to, weight, unit * kUnit, first_feature, &pipe->full[stage]);
    copy_box(to + kFeatures * kRowBytes, x, unit * kUnit, first_token, &pipe->full[stage]);
  }
}

/// A warpgroup's 64 features of the tile. A stage is freed when the next one's products have begun
/// and its own are over.
template <class T, int kTokens>
__device__ void multiply_tiles(const WgmmaTask& task, int group, Pipe* pipe, const char* stages,
                               float (&sums)[kTokens / 2]) {
  for (int32_t unit = 0; unit < task.units; ++unit) {
    const int stage = unit % kStages;
    barrier_wait(&pipe->full[stage], static_cast<uint32_t>(unit / kStages) & 1);
    const char* tile = stages + stage * stage_bytes(kTokens);
    products_fence();
    HEADRACE_UNROLL
    for (uint32_t k = 0; k < kUnit / 16; ++k) {
      wgmma_64xk16<T, kTokens>(sums, tile_descriptor(tile + group * 64 * kRowBytes, k * 32),
                               tile_descriptor(tile + kFeatures * kRowBytes, k * 32), true);
    }
    products_commit();
    products_wait<1>();
    if (unit > 0 && lane_id() == 0) barrier_arrive(&pipe->empty[(unit - 1) % kStages]);
  }
  products_wait<0>();
  hold_registers(sums);
}

#endif

template <class T, class Out, int kTokens>
__global__ void __launch_bounds__(kThreads, 1)
    linear_wgmma_kernel(const __grid_constant__ TensorMap weight,
                        const __grid_constant__ TensorMap x, WgmmaTask task,
                        LinearOutput<T, Out> out) {
#if defined(HEADRACE_HOPPER)
  auto* pipe = reinterpret_cast<Pipe*>(shared_memory());
  char* stages = shared_memory() + kBarrierBytes;
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  constexpr uint32_t kConsumerWarps = 2 * kGroupThreads / kWarp;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(&pipe->full[i], 1);
      barrier_init(&pipe->empty[i], kConsumerWarps);
    }
    barrier_init_fence();
  }
  __syncthreads();

  // Blocks that run together share weight tiles and rows in the L2 cache.
  constexpr int64_t kSharedFeatureTiles = 8;
  const int64_t span = kSharedFeatureTiles * task.token_tiles;
  const int64_t first_tile = blockIdx.x / span * kSharedFeatureTiles;
  const int64_t width = least<int64_t>(kSharedFeatureTiles, task.feature_tiles - first_tile);
  const int64_t first_feature = (first_tile + blockIdx.x % span % width) * kFeatures;
  const int64_t first_token = blockIdx.x % span / width * kTokens;

  if (group == 0) {
    give_registers<40>();
    if (threadIdx.x == 0) {
      prefetch_map(&weight);
      prefetch_map(&x);
      copy_tiles<kTokens>(&weight, &x, task, static_cast<int32_t>(first_feature),
                          static_cast<int32_t>(first_token), pipe, stages);
    }
    return;
  }
  take_registers<232>();
  float sums[kTokens / 2] = {};
  multiply_tiles<T, kTokens>(task, group - 1, pipe, stages, sums);

  // All products are over: their stages hold the sums now.
  constexpr int kConsumers = 2 * kGroupThreads;
  named_barrier(1, kConsumers);
  auto* tile = reinterpret_cast<float*>(stages);
  const int lane = lane_id(), warp = warp_id() % 4;
  const int feature = (group - 1) * 64 + warp * 16 + lane / 4;
  HEADRACE_UNROLL
  for (int i = 0; i < kTokens / 2; ++i) {
    const int token = i / 4 * 8 + lane % 4 * 2 + i % 2;
    tile[token * kSumStride + feature + i / 2 % 2 * 8] = sums[i];
  }
  named_barrier(1, kConsumers);
  write_tile<T, Out>({tile, 0, kSumStride, 1, kFeatures, first_feature, first_token,
                      static_cast<int>(least<int64_t>(kTokens, task.rows - first_token))},
                     out, static_cast<int>(threadIdx.x) - kGroupThreads, kConsumers);
#endif
}

template <class T, class Out, int kTokens>
void run(const LinearArgs& args, Stream stream) {
  const WeightLayout& layout = args.layout;
  const WgmmaTask task{static_cast<int32_t>(layout.stride() / kUnit), args.x.rows,
                       divide_up<int64_t>(layout.stored_rows(), kFeatures),
                       divide_up<int64_t>(args.x.rows, kTokens)};
  const TensorMap weight = make_tensor_map(
      {args.weight, layout.stored_rows(), layout.stride(), layout.stride()}, args.dtype, kFeatures);
  const TensorMap x = make_tensor_map(args.x, args.dtype, kTokens);
  launch("linear_wgmma", linear_wgmma_kernel<T, Out, kTokens>,
         {.grid = {grid_size(task.feature_tiles * task.token_tiles)},
          .threads = kThreads,
          .shared_bytes = shared_bytes(kTokens)},
         stream, weight, x, task, linear_output<T, Out>(args));
}

}  // namespace

bool can_use_wgmma(const LinearArgs& args) {
  constexpr int64_t kMinRows = 128;  // below, the weight's bytes decide, and other kernels do
  const auto aligned = [](const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; };
  return args.has_wgmma && args.x.rows >= kMinRows && aligned(args.x.data) &&
         aligned(args.weight) && args.x.stride % 8 == 0 && args.x.rows <= 0x7fffffff &&
         args.layout.stored_rows() <= 0x7fffffff && args.layout.stride() <= 0x7fffffff;
}

void linear_wgmma(const LinearArgs& args, Stream stream) {
  with_linear_types(args, [&](auto element, auto result) {
    using T = decltype(element);
    using Out = decltype(result);
    if (args.x.rows <= 128) {
      run<T, Out, 128>(args, stream);
    } else {
      run<T, Out, 256>(args, stream);
    }
  });
}

}  // namespace headrace::cuda
