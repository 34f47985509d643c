#pragma once

// The products of int4 and int8 weights with 16-bit rows by wgmma (sm_90a), for any number of rows.
// Features are the products' m and rows their n. A tile of 16 features holds codes in the order of
// mma's a (quant_layout.h), which is that of a warp's part of wgmma's a in registers.

#include "cuda/device/wgmma.cuh"
#include "cuda/kernels/linear/linear_epilogue.cuh"
#include "cuda/kernels/quant/quant_wgmma_pipe.cuh"

namespace headrace::cuda::quant_wgmma {

#if defined(HEADRACE_HOPPER)

/// A warp's 16 features of a stage, in shared memory.
template <class C>
struct StageTile {
  const char *codes, *scales, *zeros;

  __device__ StageTile(const char* stage, int tile, int groups)
      : codes(stage + C::kCodesAt + tile * kBoxBytes + lane_id() * kLaneVector),
        scales(stage + C::kScalesAt + tile * groups * kQuantTile * 2 + lane_id() / 4 * 4),
        zeros(stage + C::kZerosAt + tile * groups * kQuantTile + lane_id() / 4 * 2) {}

  /// The lane's codes of kCount steps of 16 k, from `step` on.
  template <int kCount>
  __device__ void load(int step, uint32_t (&words)[kCount * C::kBits / 4]) const {
    constexpr int kStepWords = C::kBits / 4, kLoaded = least(kCount * kStepWords, kWords);
    HEADRACE_UNROLL
    for (int i = 0; i < kCount * kStepWords; i += kLoaded) {
      const int at = (step * kStepWords + i) * 4;  // bytes of the lane's
      const int vector = at / kLaneVector;
      const char* from =
          codes + vector / 2 * C::kTiles * kBoxBytes + vector % 2 * kWarpVector + at % kLaneVector;
      if constexpr (kLoaded == 4) {
        const uint4 four = *reinterpret_cast<const uint4*>(from);
        __builtin_memcpy(words + i, &four, sizeof four);
      } else {
        const uint2 two = *reinterpret_cast<const uint2*>(from);
        __builtin_memcpy(words + i, &two, sizeof two);
      }
    }
  }
};

/// Operand a of the groups of k that are multiplied together, of kSteps steps of 16 k each, and the
/// groups' scales.
template <class T, class C, int kSteps>
struct Batch {
  static constexpr int kUnitSteps = kQuantUnit / 16, kUnitGroups = kUnitSteps / kSteps;
  static constexpr int kGroups = least(kUnitGroups, C::kMostChains);
  static constexpr int kCount = kGroups * kSteps;  // steps
  uint32_t a[kCount][4];
  uint32_t scales[kGroups];

  /// Batch `number` of a stage.
  __device__ void load(const WgmmaTask& task, const StageTile<C>& tile, int number) {
    constexpr int kStepWords = C::kBits / 4;
    uint32_t words[kCount * kStepWords];
    tile.template load<kCount>(number * kCount, words);
    HEADRACE_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      const int group = (number * kGroups + g) * kQuantTile;
      scales[g] = *reinterpret_cast<const uint32_t*>(tile.scales + group * 2);
      RowZeros<T, C::kBits> zeros(quant_zero(C::kBits));
      if (task.zero_points) zeros.set(*reinterpret_cast<const uint16_t*>(tile.zeros + group));
      HEADRACE_UNROLL
      for (int i = g * kSteps; i < (g + 1) * kSteps; ++i) {
        codes_to_a<T, C::kBits>(words + i * kStepWords, zeros.low, zeros.high, a[i]);
      }
    }
  }

  /// Starts the products of a group with all rows.
  __device__ void multiply(int number, int g, uint64_t rows, float (&products)[C::kSums]) const {
    constexpr int kBoxSteps = kBoxColumns / 16;
    HEADRACE_UNROLL
    for (int i = 0; i < kSteps; ++i) {
      const int step = number * kCount + g * kSteps + i;
      const int bytes =
          step / kBoxSteps * C::kTokens * kRowBytes + step % kBoxSteps * (kRowBytes / kBoxSteps);
      wgmma_held_64xk16<T, C::kTokens>(products, a[g * kSteps + i], behind(rows, bytes), i > 0);
    }
  }
  __device__ void hold() {
    HEADRACE_UNROLL
    for (int i = 0; i < kCount; ++i) hold_registers(a[i]);
  }
};

/// A warpgroup's products of a tile.
template <class T, class C, int kSteps>
struct TileProducts {
  using Own = Batch<T, C, kSteps>;
  static constexpr int kBatches = Own::kUnitGroups / Own::kGroups;
  // A unit's last batch is multiplied while the next unit's first one is made.
  static constexpr bool kLooksAhead = kBatches % 2 == 0;

  const WgmmaTask& task;
  Pipe<C>* pipe;
  const char* stages;
  Own batches[kBatches > 1 ? 2 : 1];
  float products[C::kMostChains][C::kSums] = {};

  __device__ const char* stage(const StagePlace<C>& at) const {
    return stages + at.stage * C::kStageBytes;
  }
  __device__ void load(const StagePlace<C>& at, int batch) {
    const StageTile<C> tile(stage(at), warp_id(), Own::kUnitGroups);
    batches[batch % 2].load(task, tile, batch);
  }
  /// The first batch of a stage, once it is there.
  __device__ void begin(const StagePlace<C>& at) {
    barrier_wait(&pipe->full[at.stage], at.parity);
    load(at, 0);
  }

  /// A stage to the sums. A group of k is one chain, then one multiply-add in float32 with its
  /// scale. While a batch is multiplied, the next one's operand is made. `more`: of the tile.
  __device__ void add(const StagePlace<C>& at, bool more, float (&sums)[C::kSums]) {
    const int own_group = static_cast<int>(threadIdx.x) / kGroupThreads;
    uint64_t rows = tile_descriptor(stage(at), 0);
    if constexpr (!C::kMany) {  // one register for the warp, which the compiler doesn't see
      constexpr uint64_t kHigh = ~uint64_t{0xffffffff};
      rows = (rows & kHigh) | __shfl_sync(kAllLanes, static_cast<uint32_t>(rows), 0);
    }
    if (!kLooksAhead) begin(at);
    HEADRACE_UNROLL
    for (int b = 0; b < kBatches; ++b) {
      Own& batch = batches[b % 2];
      if constexpr (C::kMany) named_barrier(kTurn + own_group, kConsumers);
      products_fence();
      HEADRACE_UNROLL
      for (int g = 0; g < Own::kGroups; ++g) batch.multiply(b, g, rows, products[g]);
      products_commit();
      if constexpr (C::kMany) named_barrier_arrive(kTurn + (own_group ^ 1), kConsumers);
      if (b + 1 < kBatches) {
        load(at, b + 1);
      } else if (kLooksAhead && more) {
        begin(at.next());
      }
      products_wait<0>();
      batch.hold();
      HEADRACE_UNROLL
      for (int g = 0; g < Own::kGroups; ++g) {
        hold_registers(products[g]);
        const ScalePair scale = scales_of(batch.scales[g], task.f16_scales);
        HEADRACE_UNROLL
        for (int i = 0; i < C::kSums; ++i) {
          sums[i] = fmaf(products[g][i], i % 4 < 2 ? scale.low : scale.high, sums[i]);
        }
      }
    }
  }
};

/// A warpgroup's 64 features of a tile, the block's slices of k. `at`: the next stage.
template <class T, class C, int kSteps>
__device__ void multiply_tile(const WgmmaTask& task, const BlockWork& work, Pipe<C>* pipe,
                              const char* stages, StagePlace<C>& at, float (&totals)[C::kSums]) {
  using Products = TileProducts<T, C, kSteps>;
  Products tile{task, pipe, stages};
  int32_t unit = work.first_unit(task);
  const int32_t end_unit = work.end_unit(task);
  if (Products::kLooksAhead && unit < end_unit) tile.begin(at);
  HEADRACE_NO_UNROLL
  for (int32_t slice = work.first_slice; slice < work.end_slice; ++slice) {
    const auto end = static_cast<int32_t>(slice_begin(task.units, slice + 1));
    float sums[C::kSums] = {};
    HEADRACE_NO_UNROLL
    for (; unit < end; ++unit, at = at.next()) {
      tile.add(at, unit + 1 < end_unit, sums);
      free_stage<C::kCluster>(pipe, static_cast<uint32_t>(at.stage));
    }
    HEADRACE_UNROLL
    for (int i = 0; i < C::kSums; ++i) totals[i] += sums[i];
  }
}

/// Totals of tokens from kFirst on to shared memory, as [token][feature].
template <class C, int kFirst, int kCount>
__device__ void put_totals(const float (&totals)[C::kSums], float* to) {
  to += lane_id() % 4 * 2 * C::kSumStride + warp_id() % 4 * kQuantTile + lane_id() / 4;
  HEADRACE_UNROLL
  for (int i = 0; i < kCount / 2; ++i) {
    to[(i / 4 * 8 + i % 2) * C::kSumStride + i / 2 % 2 * 8] = totals[kFirst / 2 + i];
  }
}

/// What a warpgroup has of a tile to the output, from token kFirst on, piece by piece.
template <class C, int kFirst = 0, class T, class Out>
__device__ void write_tile(const WgmmaTask& task, const TilePlace& place, int group,
                           const float (&totals)[C::kSums], float* results,
                           const LinearOutput<T, Out>& out) {
  const int32_t first_row = place.first_token + kFirst;
  const int rows = least(C::kPiece, greatest(task.rows - first_row, 0));
  named_barrier(kWithin + group, kGroupThreads);  // the results before have been read
  put_totals<C, kFirst, C::kPiece>(totals, results);
  named_barrier(kWithin + group, kGroupThreads);
  write_sums<kGroupFeatures>(results, C::kSumStride, rows, first_row,
                             place.first_feature + group * kGroupFeatures, out,
                             static_cast<int>(threadIdx.x) % kGroupThreads, kGroupThreads);
  if constexpr (kFirst + C::kPiece < C::kTokens) {
    write_tile<C, kFirst + C::kPiece>(task, place, group, totals, results, out);
  }
}

/// The slices that the cluster's blocks have in shared memory, added up in order: each block writes
/// 16 features. By the threads that multiply.
template <class C, class T, class Out>
__device__ void write_slices(const WgmmaTask& task, const TilePlace& place, const float* slices,
                             float* results, const LinearOutput<T, Out>& out) {
  constexpr int kVectors = kQuantTile / 4, kStride = kQuantTile + 4;
  const auto thread = static_cast<int>(threadIdx.x), tile = static_cast<int>(cluster_rank());
  for (int i = thread; i < C::kTokens * kVectors; i += kGroupThreads) {
    const int token = i / kVectors, first = i % kVectors * 4;
    const auto* from =
        reinterpret_cast<const float4*>(slices + token * C::kSumStride + tile * kQuantTile + first);
    float4 total{};
    HEADRACE_UNROLL
    for (uint32_t slice = 0; slice < kQuantSlices; ++slice) {
      const float4 own = load_from_block(from, slice);
      total = {total.x + own.x, total.y + own.y, total.z + own.z, total.w + own.w};
    }
    *reinterpret_cast<float4*>(results + token * kStride + first) = total;
  }
  named_barrier(kWithin, kGroupThreads);
  write_sums<kQuantTile>(
      results, kStride, least(C::kTokens, greatest(task.rows - place.first_token, 0)),
      place.first_token, place.first_feature + tile * kQuantTile, out, thread, kGroupThreads);
}

template <class T, class C>
__device__ void multiply_any_tile(const WgmmaTask& task, const BlockWork& work, Pipe<C>* pipe,
                                  const char* stages, StagePlace<C>& at,
                                  float (&totals)[C::kSums]) {
  if (task.group_bits == 7) return multiply_tile<T, C, 8>(task, work, pipe, stages, at, totals);
  if (task.group_bits == 6) return multiply_tile<T, C, 4>(task, work, pipe, stages, at, totals);
  multiply_tile<T, C, 2>(task, work, pipe, stages, at, totals);
}

/// A warpgroup's work.
template <class C, class T, class Out>
__device__ void multiply(const WgmmaTask& task, const BlockWork& work, int group, Pipe<C>* pipe,
                         char* stages, float* results, const LinearOutput<T, Out>& out) {
  if (C::kMany && group == 1) named_barrier_arrive(kTurn, kConsumers);  // group 0 begins
  StagePlace<C> at;
  HEADRACE_NO_UNROLL
  for (int32_t tile = work.first_tile; tile < task.num_tiles(); tile += work.tile_step) {
    float totals[C::kSums] = {};
    multiply_any_tile<T, C>(task, work, pipe, stages, at, totals);
    if (C::kMany || task.split == 1) {
      write_tile<C>(task, tile_place<C>(task, tile), group, totals, results, out);
    } else {  // the block's only tile: nothing is on its way to the stages
      named_barrier(kWithin, kGroupThreads);
      put_totals<C, 0, C::kTokens>(totals, reinterpret_cast<float*>(stages));
    }
  }
}

#endif

/// Blocks stay and take tiles in turn: a warp copies, each warpgroup has 64 features of all rows of
/// a tile. Codes become operand a in registers.
template <class T, class Out, class C>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
    quant_linear_wgmma_kernel(const __grid_constant__ TensorMap codes,
                              const __grid_constant__ TensorMap scales,
                              const __grid_constant__ TensorMap zeros,
                              const __grid_constant__ TensorMap x, WgmmaTask task,
                              LinearOutput<T, Out> out) {
#if defined(HEADRACE_HOPPER)
  start_next();
  auto* pipe = reinterpret_cast<Pipe<C>*>(shared_memory());
  static_assert(sizeof(Pipe<C>) <= kBarrierBytes);
  char* stages = shared_memory() + kBarrierBytes;
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  const BlockWork work(task);
  if (threadIdx.x == 0) pipe->init(C::kGroups * kGroupThreads / kWarp * C::kCluster);
  if constexpr (C::kMany) {
    cluster_sync();
  } else {
    __syncthreads();
  }
  auto* results = reinterpret_cast<float*>(shared_memory() + C::kResultsAt + group * C::kSumBytes);
  if (group == C::kGroups) {
    if constexpr (C::kMany) give_registers<24>();
    if (threadIdx.x == C::kGroups * kGroupThreads) {
      const Maps maps{&codes, &scales, &zeros, &x};
      Copies<C>{maps, task, work, pipe, stages}.run();
    }
  } else {
    if constexpr (C::kMany) take_registers<240>();
    wait_for_previous();
    multiply<C>(task, work, group, pipe, stages, results, out);
  }
  if (C::kMany || task.split > 1) cluster_sync();  // all slices are there
  if constexpr (!C::kMany) {
    if (task.split == 1) return;
    if (group == 0) {
      write_slices<C>(task, tile_place<C>(task, work.first_tile),
                      reinterpret_cast<const float*>(stages), results, out);
    }
    cluster_sync();  // and have been read
  }
#endif
}

template <class T, class Out, class C>
void run(const QuantLinearArgs& args, Stream stream) {
  const QuantLayout layout = layout_of(args);
  const QuantWeightView weight = view_of(layout, args.linear.weight);
  const int64_t token_tiles = divide_up<int64_t>(args.linear.x.rows, C::kTokens);
  const int64_t feature_tiles =
      divide_up<int64_t>(layout.matrix.stored_rows(), C::kFeatures * C::kCluster) * C::kCluster;
  const int64_t tiles = token_tiles * feature_tiles;
  HEADRACE_CHECK(tiles <= 0x7fffffff / kQuantSlices, token_tiles, " x ", feature_tiles);
  const int64_t multiprocessors = args.linear.multiprocessors;
  const bool splits = !C::kMany && tiles <= multiprocessors;
  const WgmmaTask task{.units = static_cast<int32_t>(layout.units()),
                       .rows = static_cast<int32_t>(args.linear.x.rows),
                       .feature_tiles = static_cast<int32_t>(feature_tiles),
                       .token_tiles = static_cast<int32_t>(token_tiles),
                       .split = splits ? kQuantSlices : 1,
                       .group_bits = weight.group_bits,
                       .zero_points = weight.zero_points,
                       .f16_scales = weight.f16_scales};
  const int64_t most =
      greatest<int64_t>(multiprocessors * C::kBlocks / C::kCluster * C::kCluster, C::kCluster);
  const int unit_groups = kQuantUnit / args.format.group_size;
  const auto run_of = [&](int64_t at, int64_t bytes, int box_bytes) {
    return make_run_map({weight.data + at, layout.tiles(), layout.tile_bytes(), bytes}, box_bytes,
                        C::kTiles);
  };
  const int64_t numbers = layout.groups() * kQuantTile;
  const TensorMap scales = run_of(layout.scales_at(), 2 * numbers, 2 * unit_groups * kQuantTile);
  launch("quant_linear_wgmma", quant_linear_wgmma_kernel<T, Out, C>,
         {.grid = {grid_size(splits ? tiles * kQuantSlices : least(most, tiles))},
          .threads = C::kThreads,
          .shared_bytes = C::kSharedBytes,
          .overlaps = true,
          .cluster = static_cast<unsigned>(splits ? kQuantSlices : C::kCluster)},
         stream, run_of(0, layout.scales_at(), kBoxBytes), scales,
         task.zero_points ? run_of(layout.zeros_at(), numbers, unit_groups * kQuantTile) : scales,
         make_tensor_map(args.linear.x, args.linear.dtype, C::kTokens / C::kCluster), task,
         linear_output<T, Out>(args.linear));
}

}  // namespace headrace::cuda::quant_wgmma
