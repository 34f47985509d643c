#pragma once

// What blocks of quant_wgmma.cuh work on, and how it comes to shared memory.

#include "cuda/device/cluster.cuh"
#include "cuda/device/overlap.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/kernels/linear/tensor_map.h"
#include "cuda/kernels/quant/quant_task.cuh"

namespace headrace::cuda::quant_wgmma {

inline constexpr int kRowBytes = kBoxColumns * 2;
inline constexpr int kUnitBoxes = kQuantUnit / kBoxColumns;  // of rows of x, for a unit of k
inline constexpr int kGroupFeatures = 64;                    // of a product
inline constexpr int kGroupThreads = 128;
inline constexpr int kConsumers = 2 * kGroupThreads;  // of two groups
inline constexpr int kBarrierBytes = 1024;            // keeps what follows aligned
inline constexpr int kBoxBytes = 1024;                // of a tile's codes
inline constexpr int kMostUnitGroups = kQuantUnit / 32;
inline constexpr int kWords = 4;  // of 16 bytes of codes

// Named barriers: a group's turn to multiply, and a group's own.
inline constexpr int kTurn = 1, kWithin = 3;

/// What a block works on: kGroups warpgroups of 64 features each, all with the same kTokens rows.
/// A stage is a unit of 128 k.
template <int kBits_, int kGroups_, int kTokens_>
struct Shape {
  static constexpr int kBits = kBits_;
  static constexpr int kGroups = kGroups_;
  static constexpr int kTokens = kTokens_;
  static constexpr int kFeatures = kGroups * kGroupFeatures;
  static constexpr int kTiles = kFeatures / kQuantTile;
  static constexpr int kSums = kTokens / 2;  // of a lane
  // Groups of k whose products registers hold at once.
  static constexpr int kMostChains = kTokens <= 16 ? 4 : kTokens <= 32 ? 2 : 1;
  // Two groups take turns; their block's neighbour has other features of the same rows, of which
  // each copies half for both. A warp copies, or as many as give their registers away.
  static constexpr bool kMany = kGroups == 2;
  static constexpr int kCluster = kMany ? 2 : 1;
  static constexpr int kThreads = kGroups * kGroupThreads + (kMany ? kGroupThreads : kWarp);
  // Two small blocks fit a multiprocessor: the weights of the next linear arrive while this one
  // ends.
  static constexpr int kBlocks = kMany ? 1 : 2;

  static constexpr int kTokenBytes = kTokens * kUnitBoxes * kRowBytes;
  static constexpr int kTileCodes = kUnitBoxes * stage_code_bytes(kBits);
  static constexpr int kCodeBytes = kTiles * kTileCodes;
  static constexpr int kScaleBytes = kTiles * kMostUnitGroups * kQuantTile * 2;
  static constexpr int kZeroBytes = kTiles * kMostUnitGroups * kQuantTile;
  static constexpr int kCodesAt = kTokenBytes, kScalesAt = kCodesAt + kCodeBytes;
  static constexpr int kZerosAt = kScalesAt + kScaleBytes;
  static constexpr int kStageBytes = divide_up(kZerosAt + kZeroBytes, 1024) * 1024;

  static constexpr int kSumStride = kGroupFeatures + 4;  // floats
  static constexpr int kPiece = least(kTokens, 32);      // rows that are written at once
  static constexpr int kSumBytes = kPiece * kSumStride * 4;
  static constexpr int kRoom = (kMany ? 227 : 112) << 10;
  static constexpr int kStages = (kRoom - kBarrierBytes - kGroups * kSumBytes) / kStageBytes;
  static constexpr int kResultsAt = kBarrierBytes + kStages * kStageBytes;
  static constexpr int kSharedBytes = kResultsAt + kGroups * kSumBytes;
  static_assert(kStages >= 3 && kTokens * kSumStride * 4 <= kStages * kStageBytes);
};

template <int kBits>
using LargeShape = Shape<kBits, 2, 128>;

struct WgmmaTask {
  int32_t units, rows;
  int32_t feature_tiles, token_tiles;  // of blocks; feature_tiles: a multiple of kCluster
  int32_t split;  // 1, or kQuantSlices: the blocks of a cluster have a slice of k of a tile each
  int32_t group_bits;
  bool zero_points, f16_scales;

  __device__ int32_t num_tiles() const { return feature_tiles * token_tiles; }
};

/// Work of the blocks in turn. Clusters that share rows take neighbouring features of them; tiles
/// that run together share weights and rows in the L2 cache.
struct TilePlace {
  int32_t first_token, first_feature;
};

template <class C>
__device__ TilePlace tile_place(const WgmmaTask& task, int32_t tile) {
  constexpr int32_t kShared = 16;  // token tiles that go through all features together
  const int32_t index = tile / C::kCluster, features = task.feature_tiles / C::kCluster;
  const int32_t span = kShared * features;
  const int32_t first = index / span * kShared;
  const int32_t width = least(kShared, task.token_tiles - first);
  const int32_t token = first + index % span % width;
  const int32_t feature = index % span / width * C::kCluster + tile % C::kCluster;
  return {token * C::kTokens, feature * C::kFeatures};
}

#if defined(HEADRACE_HOPPER)

/// Slices of k of a block, and the tiles that it takes.
struct BlockWork {
  int32_t first_tile, tile_step, first_slice, end_slice;

  __device__ explicit BlockWork(const WgmmaTask& task)
      : first_tile(static_cast<int32_t>(blockIdx.x) / task.split),
        tile_step(static_cast<int32_t>(gridDim.x) / task.split),
        first_slice(task.split == 1 ? 0 : static_cast<int32_t>(cluster_rank())),
        end_slice(task.split == 1 ? kQuantSlices : first_slice + 1) {}

  __device__ int32_t first_unit(const WgmmaTask& task) const {
    return static_cast<int32_t>(slice_begin(task.units, first_slice));
  }
  __device__ int32_t end_unit(const WgmmaTask& task) const {
    return static_cast<int32_t>(slice_begin(task.units, end_slice));
  }
};

struct Maps {
  const void *codes, *scales, *zeros, *x;
};

template <class C>
using Pipe = StagePipe<C::kStages>;

/// Fills stage after stage as all who read it free it: one thread's work. The weight of the first
/// stages is under way before the kernel ahead has ended.
template <class C>
struct Copies {
  const Maps& maps;
  const WgmmaTask& task;
  const BlockWork& work;
  Pipe<C>* pipe;
  char* stages;

  __device__ void copy_weight(uint32_t n, const TilePlace& place, int32_t unit) const {
    uint64_t* const full = &pipe->full[n % C::kStages];
    char* const to = stages + n % C::kStages * C::kStageBytes;
    const int32_t tile = place.first_feature / kQuantTile;
    const int32_t pairs = kQuantUnit >> task.group_bits << 3;  // of scales of a tile
    const int32_t number_bytes = C::kTiles * pairs * (task.zero_points ? 6 : 4);
    barrier_expect_bytes(full,
                         static_cast<uint32_t>(C::kTokenBytes + C::kCodeBytes + number_bytes));
    constexpr int kBoxes = C::kTileCodes / kBoxBytes;
    HEADRACE_UNROLL
    for (int box = 0; box < kBoxes; ++box) {
      copy_run(to + C::kCodesAt + box * C::kTiles * kBoxBytes, maps.codes,
               (unit * kBoxes + box) * (kBoxBytes / 4), tile, full);
    }
    copy_run(to + C::kScalesAt, maps.scales, unit * pairs, tile, full);
    if (task.zero_points) copy_run(to + C::kZerosAt, maps.zeros, unit * pairs / 2, tile, full);
  }
  __device__ void copy_rows(uint32_t n, const TilePlace& place, int32_t unit) const {
    uint64_t* const full = &pipe->full[n % C::kStages];
    char* const to = stages + n % C::kStages * C::kStageBytes;
    HEADRACE_UNROLL
    for (int box = 0; box < kUnitBoxes; ++box) {
      char* const rows = to + box * C::kTokens * kRowBytes;
      const int32_t k = (unit * kUnitBoxes + box) * kBoxColumns;
      if constexpr (C::kCluster == 1) {
        copy_box(rows, maps.x, k, place.first_token, full);
      } else {
        constexpr auto kAll = static_cast<uint16_t>((1 << C::kCluster) - 1);
        const int part = static_cast<int>(cluster_rank()) * (C::kTokens / C::kCluster);
        copy_box_to_cluster(rows + part * kRowBytes, maps.x, k, place.first_token + part, full,
                            kAll);
      }
    }
  }

  __device__ void run() const {
    const int32_t first_unit = work.first_unit(task), end_unit = work.end_unit(task);
    const int32_t ahead = least(end_unit - first_unit, C::kStages);
    const TilePlace begin = tile_place<C>(task, work.first_tile);
    for (int32_t i = 0; i < ahead; ++i) {
      copy_weight(static_cast<uint32_t>(i), begin, first_unit + i);
    }
    wait_for_previous();
    uint32_t n = 0;
    for (int32_t tile = work.first_tile; tile < task.num_tiles(); tile += work.tile_step) {
      const TilePlace place = tile_place<C>(task, tile);
      for (int32_t unit = first_unit; unit < end_unit; ++unit, ++n) {
        if (n >= C::kStages) {
          barrier_wait(&pipe->empty[n % C::kStages], (n / C::kStages - 1) & 1);
        }
        if (n >= static_cast<uint32_t>(ahead)) copy_weight(n, place, unit);
        copy_rows(n, place, unit);
      }
    }
  }
};

/// A stage that is read. Without divisions, so that descriptors are made once for a warp.
template <class C>
struct StagePlace {
  int32_t stage = 0;
  uint32_t parity = 0;

  __device__ StagePlace next() const {
    const bool wraps = stage + 1 == C::kStages;
    return {wraps ? 0 : stage + 1, wraps ? parity ^ 1 : parity};
  }
};

#endif

}  // namespace headrace::cuda::quant_wgmma
