#include "cuda/device/cluster.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/kernels/linear/linear_epilogue.cuh"
#include "cuda/kernels/linear/tensor_map.h"
#include "cuda/kernels/rounded/round_rows.h"
#include "cuda/kernels/rounded/rounded_linear.h"

namespace headrace::cuda {
namespace {

constexpr int kRowBytes = kMapUnitBytes;  // a unit of k
constexpr int kGroupFeatures = 64;        // of a product
constexpr int kGroupThreads = 128;
constexpr int kAlignedBytes = 1024;  // barriers and scales, each; keeps what follows aligned
constexpr int kScalesOfRow = kRowBytes / 4;

/// What a block works on: kGroups warpgroups of 64 features each, all with the same kTokens rows.
template <int kGroups_, int kTokens_, int kStages_>
struct Shape {
  static constexpr int kGroups = kGroups_;
  static constexpr int kTokens = kTokens_;
  static constexpr int kStages = kStages_;
  static constexpr int kFeatures = kGroups * kGroupFeatures;
  // And a warp that copies, or as many as give their registers to two groups that multiply.
  static constexpr bool kMovesRegisters = kGroups == 2;
  static constexpr int kThreads =
      kGroups * kGroupThreads + (kMovesRegisters ? kGroupThreads : kWarp);
  static constexpr int kWeightBytes = kFeatures * kRowBytes;
  static constexpr int kTokenBytes = kTokens * kRowBytes;
  static constexpr int kScaleRows = divide_up(kTokens, kScalesOfRow);
  static constexpr int kStageBytes = kWeightBytes + kTokenBytes + kAlignedBytes;
  static constexpr int kSumStride = kGroupFeatures + 4;  // floats
  static constexpr int kPiece = least(kTokens, 64);      // rows that are written at once
  static constexpr int kSumBytes = kPiece * kSumStride * 4;
  static constexpr int kSharedBytes = kAlignedBytes + kStages * kStageBytes + kGroups * kSumBytes;
  // Two small blocks fit a multiprocessor: the weights of the next linear arrive while this one
  // ends.
  static constexpr int kBlocks = kGroups == 1 && kTokens <= 64 ? 2 : 1;
  static_assert(kBlocks * (kSharedBytes + 1024) <= 228 << 10);
  // Two blocks with neighbouring rows share a tile of the weight, each of which copies half of it
  // for both.
  static constexpr int kCluster = kGroups;
};

struct WgmmaTask {
  const uint8_t* weight;
  int64_t tile_bytes, scales_at;
  const float* scales;  // of rows: [units or 1][scale_stride]
  int32_t scale_stride, rows;
  int32_t units, weight_tiles;         // of 16
  int32_t feature_tiles, token_tiles;  // of blocks; token_tiles: a multiple of kCluster
  bool by_unit;                        // a scale for each unit
};

/// Work of the blocks in turn. Clusters take neighbouring token tiles of one feature tile; tiles
/// that run together share weights and rows in the L2 cache.
struct TilePlace {
  int32_t first_token, first_feature;
};

template <class C>
__device__ TilePlace tile_place(const WgmmaTask& task, int32_t tile) {
  constexpr int32_t kShared = 16;  // token tiles that go through all features together
  const int32_t span = kShared * task.feature_tiles;
  const int32_t first = tile / span * kShared;
  const int32_t width = least(kShared, task.token_tiles - first);
  const int32_t token = first + tile % span % width, feature = tile % span / width;
  return {token * C::kTokens, feature * C::kFeatures};
}

#if defined(HEADRACE_HOPPER)

__device__ inline int32_t num_tiles(const WgmmaTask& task) {
  return task.feature_tiles * task.token_tiles;
}

/// Scales of a lane's two features of a tile of 16, of a unit or of all.
__device__ inline float2 weight_scales(const WgmmaTask& task, int32_t tile, int32_t unit) {
  const auto* from = reinterpret_cast<const float2*>(
      task.weight + least(tile, task.weight_tiles - 1) * task.tile_bytes + task.scales_at);
  return from[unit * (kQuantTile / 2) + lane_id() / 4];
}

struct Maps {
  const void* weight;
  const void* x;
  const void* scales;
};

template <class C>
using Pipe = StagePipe<C::kStages>;

/// Fills stage after stage as all blocks of the cluster free them: one thread's work. The weight of
/// the first stages is under way before the kernel ahead has ended.
template <class C>
struct Copies {
  const Maps& maps;
  const WgmmaTask& task;
  Pipe<C>* pipe;
  char* stages;

  __device__ void copy_weight(uint32_t n, const TilePlace& place, int32_t unit) const {
    constexpr int kPart = C::kFeatures / C::kCluster;
    uint64_t* const full = &pipe->full[n % C::kStages];
    const int scale_bytes = task.by_unit ? C::kScaleRows * kRowBytes : 0;
    barrier_expect_bytes(full,
                         static_cast<uint32_t>(C::kWeightBytes + C::kTokenBytes + scale_bytes));
    char* const to = stages + n % C::kStages * C::kStageBytes;
    if constexpr (C::kCluster == 1) {
      copy_unit(to, maps.weight, place.first_feature / kQuantTile, unit, full);
    } else {
      constexpr auto kAll = static_cast<uint16_t>((1 << C::kCluster) - 1);
      const int part = static_cast<int>(cluster_rank()) * kPart;
      copy_unit_to_cluster(to + part * kRowBytes, maps.weight,
                           (place.first_feature + part) / kQuantTile, unit, full, kAll);
    }
  }
  __device__ void copy_rows(uint32_t n, const TilePlace& place, int32_t unit) const {
    uint64_t* const full = &pipe->full[n % C::kStages];
    char* const to = stages + n % C::kStages * C::kStageBytes + C::kWeightBytes;
    copy_box(to, maps.x, unit * kBoxColumns, place.first_token, full);
    if (task.by_unit) {
      copy_box(to + C::kTokenBytes, maps.scales, 0,
               (unit * task.scale_stride + place.first_token) / kScalesOfRow, full);
    }
  }

  __device__ void run() const {
    const auto first = static_cast<int32_t>(blockIdx.x);
    const int32_t ahead = least(task.units, C::kStages);
    const TilePlace begin = tile_place<C>(task, first);
    for (int32_t unit = 0; unit < ahead; ++unit) {
      copy_weight(static_cast<uint32_t>(unit), begin, unit);
    }
    wait_for_previous();
    uint32_t n = 0;
    for (int32_t tile = first; tile < num_tiles(task); tile += static_cast<int32_t>(gridDim.x)) {
      const TilePlace place = tile_place<C>(task, tile);
      for (int32_t unit = 0; unit < task.units; ++unit, ++n) {
        if (n >= C::kStages) {
          barrier_wait(&pipe->empty[n % C::kStages], (n / C::kStages - 1) & 1);
        }
        if (n >= static_cast<uint32_t>(ahead)) copy_weight(n, place, unit);
        copy_rows(n, place, unit);
      }
    }
  }
};

/// The scales of rows 8 i + 2 q and 8 i + 2 q + 1 of a stage, as the copy engine lays 32 of them
/// into 128 bytes.
__device__ inline float2 row_scales(const char* scales, int i) {
  const int q = lane_id() % 4, line = i / 4, chunk = (i % 4 * 2 + q / 2) ^ line;
  return *reinterpret_cast<const float2*>(scales + line * kRowBytes + chunk * 16 + q % 2 * 8);
}

/// A unit's products to the sums, in float32.
template <int kSums>
__device__ void add_unit(const float (&products)[kSums], bool by_unit, const float2& features,
                         const char* scales, float (&sums)[kSums]) {
  if (!by_unit) {
    HEADRACE_UNROLL
    for (int i = 0; i < kSums; ++i) sums[i] += products[i];
    return;
  }
  HEADRACE_UNROLL
  for (int i = 0; i < kSums / 4; ++i) {
    const float2 rows = row_scales(scales, i);
    HEADRACE_UNROLL
    for (int j = 0; j < 4; ++j) {
      const float scale = (j < 2 ? features.x : features.y) * (j % 2 == 0 ? rows.x : rows.y);
      sums[4 * i + j] = fmaf(products[4 * i + j], scale, sums[4 * i + j]);
    }
  }
}

/// A warpgroup's 64 features of a tile. `n`: stages of the block so far; `tile`: the warp's of 16
/// features.
template <class C>
__device__ void multiply_tile(const WgmmaTask& task, int32_t tile, int group, Pipe<C>* pipe,
                              const char* stages, uint32_t& n, float (&sums)[C::kTokens / 2]) {
  float products[C::kTokens / 2] = {};
  HEADRACE_NO_UNROLL
  for (int32_t unit = 0; unit < task.units; ++unit, ++n) {
    const float2 features = task.by_unit ? weight_scales(task, tile, unit) : float2{};
    barrier_wait(&pipe->full[n % C::kStages], n / C::kStages & 1);
    const char* stage = stages + n % C::kStages * C::kStageBytes;
    products_fence();
    HEADRACE_UNROLL
    for (uint32_t s = 0; s < kQuantUnit / 32; ++s) {
      wgmma_64xk32<C::kTokens>(products,
                               tile_descriptor(stage + group * kGroupFeatures * kRowBytes, s * 32),
                               tile_descriptor(stage + C::kWeightBytes, s * 32), s > 0);
    }
    products_commit();
    products_wait<0>();
    hold_registers(products);
    add_unit(products, task.by_unit, features, stage + C::kWeightBytes + C::kTokenBytes, sums);
    free_stage<C::kCluster>(pipe, n % C::kStages);
  }
}

/// Sums of a warpgroup, with the scales of whole features and rows, of tokens from kFirst on, to
/// its shared memory as [token][feature].
template <class C, int kFirst>
__device__ void put_sums(const WgmmaTask& task, const TilePlace& place, int32_t tile,
                         const float (&sums)[C::kTokens / 2], float* to) {
  const int q = lane_id() % 4;
  const float2 features = task.by_unit ? float2{1.0f, 1.0f} : weight_scales(task, tile, 0);
  to += warp_id() % 4 * kQuantTile + lane_id() / 4;
  HEADRACE_UNROLL
  for (int i = 0; i < C::kPiece / 8; ++i) {
    const int token = 8 * i + 2 * q;
    float2 rows{1.0f, 1.0f};
    if (!task.by_unit) {  // behind the last ones any: nobody reads those sums
      const int32_t at = least(place.first_token + kFirst + token, task.scale_stride - 2);
      rows = *reinterpret_cast<const float2*>(task.scales + at);
    }
    HEADRACE_UNROLL
    for (int j = 0; j < 4; ++j) {
      const float both = (j < 2 ? features.x : features.y) * (j % 2 == 0 ? rows.x : rows.y);
      const float sum = sums[kFirst / 2 + 4 * i + j];
      to[(token + j % 2) * C::kSumStride + j / 2 * 8] = task.by_unit ? sum : sum * both;
    }
  }
}

/// What a warpgroup has of a tile to the output, from token kFirst on, piece by piece.
template <class C, int kFirst = 0, class T, class Out>
__device__ void write_tile(const WgmmaTask& task, const TilePlace& place, int32_t tile, int group,
                           const float (&sums)[C::kTokens / 2], float* results,
                           const LinearOutput<T, Out>& out) {
  const int32_t first_row = place.first_token + kFirst;
  const int rows = least(C::kPiece, greatest(task.rows - first_row, 0));
  named_barrier(1 + group, kGroupThreads);  // the results before have been read
  put_sums<C, kFirst>(task, place, tile, sums, results);
  named_barrier(1 + group, kGroupThreads);
  write_sums<kGroupFeatures>(results, C::kSumStride, rows, first_row,
                             place.first_feature + group * kGroupFeatures, out,
                             static_cast<int>(threadIdx.x) % kGroupThreads, kGroupThreads);
  if constexpr (kFirst + C::kPiece < C::kTokens) {
    write_tile<C, kFirst + C::kPiece>(task, place, tile, group, sums, results, out);
  }
}

#endif

/// Blocks stay and take tiles in turn: a warp copies, each warpgroup has 64 features of all rows of
/// a tile, whose results go through shared memory of its own while the next tile's copies run.
template <class T, class Out, class C>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
    rounded_wgmma_kernel(const __grid_constant__ TensorMap weight,
                         const __grid_constant__ TensorMap x,
                         const __grid_constant__ TensorMap scales, WgmmaTask task,
                         LinearOutput<T, Out> out) {
#if defined(HEADRACE_HOPPER)
  start_next();
  auto* pipe = reinterpret_cast<Pipe<C>*>(shared_memory());
  static_assert(sizeof(Pipe<C>) <= kAlignedBytes);
  char* stages = shared_memory() + kAlignedBytes;
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  if (threadIdx.x == 0) pipe->init(C::kGroups * kGroupThreads / kWarp * C::kCluster);
  if constexpr (C::kCluster > 1) {
    cluster_sync();
  } else {
    __syncthreads();
  }
  if (group == C::kGroups) {
    if constexpr (C::kMovesRegisters) give_registers<24>();
    if (threadIdx.x == C::kGroups * kGroupThreads) {
      const Maps maps{&weight, &x, &scales};
      Copies<C>{maps, task, pipe, stages}.run();
    }
  } else {
    if constexpr (C::kMovesRegisters) take_registers<240>();
    wait_for_previous();
    auto* results =
        reinterpret_cast<float*>(stages + C::kStages * C::kStageBytes + group * C::kSumBytes);
    uint32_t n = 0;
    HEADRACE_NO_UNROLL
    for (auto tile = static_cast<int32_t>(blockIdx.x); tile < num_tiles(task);
         tile += static_cast<int32_t>(gridDim.x)) {
      const TilePlace place = tile_place<C>(task, tile);
      const int32_t own =
          (place.first_feature + group * kGroupFeatures) / kQuantTile + warp_id() % 4;
      float sums[C::kTokens / 2] = {};
      multiply_tile<C>(task, own, group, pipe, stages, n, sums);
      write_tile<C>(task, place, own, group, sums, results, out);
    }
  }
  // Nobody frees a stage of a block that is gone.
  if constexpr (C::kCluster > 1) cluster_sync();
#endif
}

template <class T, class Out, class C>
void run(const QuantLinearArgs& args, Stream stream) {
  const QuantLayout layout{args.linear.layout, args.format};
  const RoundedRows rows(layout, args.linear.x.rows);
  const auto* const codes = static_cast<const char*>(args.rounded);
  const char* const scales = codes + rows.scales_at();
  const int64_t token_tiles = divide_up<int64_t>(rows.rows, C::kTokens * C::kCluster) * C::kCluster;
  const int64_t feature_tiles = divide_up<int64_t>(layout.matrix.stored_rows(), C::kFeatures);
  HEADRACE_CHECK(token_tiles * feature_tiles <= 0x7fffffff, token_tiles, " x ", feature_tiles);
  const WgmmaTask task{.weight = static_cast<const uint8_t*>(args.linear.weight),
                       .tile_bytes = layout.tile_bytes(),
                       .scales_at = layout.scales_at(),
                       .scales = reinterpret_cast<const float*>(scales),
                       .scale_stride = static_cast<int32_t>(rows.scale_stride),
                       .rows = static_cast<int32_t>(rows.rows),
                       .units = static_cast<int32_t>(layout.units()),
                       .weight_tiles = static_cast<int32_t>(layout.tiles()),
                       .feature_tiles = static_cast<int32_t>(feature_tiles),
                       .token_tiles = static_cast<int32_t>(token_tiles),
                       .by_unit = args.format.activations == Activations::kFloat8Groups};
  // Bytes, two at a time.
  const ConstMatrix x{codes, rows.rows, rows.stride / 2, rows.stride / 2};
  const ConstMatrix x_scales{scales, rows.groups * rows.scale_stride / kScalesOfRow, kBoxColumns,
                             kBoxColumns};
  const int64_t tiles = token_tiles * feature_tiles;
  const int64_t most =
      int64_t{args.linear.multiprocessors} * C::kBlocks / C::kCluster * C::kCluster;
  launch("rounded_wgmma", rounded_wgmma_kernel<T, Out, C>,
         {.grid = {grid_size(least<int64_t>(greatest<int64_t>(most, C::kCluster), tiles))},
          .threads = C::kThreads,
          .shared_bytes = C::kSharedBytes,
          .overlaps = true,
          .cluster = C::kCluster},
         stream,
         make_tile_map({args.linear.weight, layout.tiles(), layout.tile_bytes(), layout.units()},
                       C::kFeatures / C::kCluster / kQuantTile),
         make_tensor_map(x, DType::kF16, C::kTokens),
         make_tensor_map(x_scales, DType::kF16, C::kScaleRows), task,
         linear_output<T, Out>(args.linear));
}

template <class T, class Out>
void run_rows(const QuantLinearArgs& args, Stream stream) {
  const int64_t rows = args.linear.x.rows;
  if (rows <= 8) return run<T, Out, Shape<1, 8, 8>>(args, stream);
  if (rows <= 16) return run<T, Out, Shape<1, 16, 8>>(args, stream);
  if (rows <= 32) return run<T, Out, Shape<1, 32, 7>>(args, stream);
  if (rows <= 64) return run<T, Out, Shape<1, 64, 5>>(args, stream);
  using Large = Shape<2, 192, 4>;
  const int64_t tiles = divide_up<int64_t>(rows, Large::kTokens) *
                        divide_up<int64_t>(args.linear.layout.stored_rows(), Large::kFeatures);
  // Small tiles where large ones would leave multiprocessors without.
  if (rows <= 128 || tiles < args.linear.multiprocessors) {
    return run<T, Out, Shape<1, 128, 6>>(args, stream);
  }
  run<T, Out, Large>(args, stream);
}

}  // namespace

bool rounded_can_use_wgmma(const QuantLinearArgs& args) {
  const QuantLayout layout{args.linear.layout, args.format};
  return args.linear.has_wgmma && has_float8(args.format) &&
         layout.matrix.stored_rows() <= 0x7fffffff && layout.units() <= 0xffff;
}

void rounded_linear_wgmma(const QuantLinearArgs& args, Stream stream) {
  if (args.linear.dtype == DType::kF32) return run_rows<float, float>(args, stream);
  with_linear_types(args.linear, [&](auto element, auto result) {
    run_rows<decltype(element), decltype(result)>(args, stream);
  });
}

}  // namespace headrace::cuda
