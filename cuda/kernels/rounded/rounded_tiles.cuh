#pragma once

// A block's products where there are many rows: 64 of them, and 32 features for each warp beside
// another. A unit's codes of the weight go to registers while the one before is multiplied; rows go
// through shared memory.

#include "cuda/kernels/rounded/rounded_task.cuh"

namespace headrace::cuda::many {

inline constexpr int kTokens = 64, kWarpTokens = 32, kTokenWarps = kTokens / kWarpTokens;
inline constexpr int kTokenTiles = kWarpTokens / 8;
inline constexpr int kRowTiles = 2, kWarpFeatures = kRowTiles * kQuantTile;
inline constexpr int kMostFeatureWarps = 4;
inline constexpr int kMostThreads = kMostFeatureWarps * kTokenWarps * kWarp;
inline constexpr int kRowChunks = kQuantUnit / 16;
inline constexpr int kStages = 4, kStageBytes = kTokens * kQuantUnit;
inline constexpr int kSumPadding = 4;

constexpr int block_threads(int feature_warps) { return feature_warps * kTokenWarps * kWarp; }
constexpr int shared_bytes(int feature_warps) {
  const int sums =
      static_cast<int>(sizeof(float)) * kTokens * (feature_warps * kWarpFeatures + kSumPadding);
  return kStages * kStageBytes > sums ? kStages * kStageBytes : sums;
}

/// Feature warps of a block: as many as leave every multiprocessor a block. `pairs`: of tiles of
/// features; `row_tiles`: blocks of rows.
inline int choose_feature_warps(int64_t pairs, int64_t row_tiles, int32_t multiprocessors) {
  int warps = kMostFeatureWarps;
  while (warps > 1 && divide_up<int64_t>(pairs, warps) * row_tiles < multiprocessors) warps /= 2;
  return warps;
}

/// Byte of 16 codes of a row in a stage: eight lanes that read the same half of two rows meet every
/// bank once.
__device__ inline int chunk_byte(int row, int chunk) {
  return row * kQuantUnit + (chunk ^ ((row & 1) << 2 | (row >> 1 & 3))) * 16;
}

/// Of warps [feature_warps][kTokenWarps], with 32 features and 32 rows each. `Task`: RoundedTask,
/// or what says as much.
template <class Code, class Task>
struct TileWarp {
  const Task& task;
  int64_t first_row;
  int feature_warps, feature_warp, first_token;
  const uint8_t* codes[kRowTiles];
  int64_t tiles[kRowTiles];
  RoundedSums sums[kRowTiles][kTokenTiles];
  float totals[kRowTiles][kTokenTiles][4] = {};

  __device__ TileWarp(const Task& t, int warps, int64_t feature_tile, int64_t first)
      : task(t),
        first_row(first),
        feature_warps(warps),
        feature_warp(warp_id() % warps),
        first_token(warp_id() / warps * kWarpTokens) {
    HEADRACE_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      // Behind the last features there is nothing to read, nor to write.
      const int64_t tile = (feature_tile * warps + feature_warp) * kRowTiles + r;
      tiles[r] = least<int64_t>(tile, task.tiles - 1);
      codes[r] = task.tile_codes(tiles[r]);
    }
  }

  __device__ void load_rows(int64_t unit) const {
    char* to = shared_memory() + unit % kStages * kStageBytes;
    for (int i = static_cast<int>(threadIdx.x); i < kTokens * kRowChunks;
         i += static_cast<int>(blockDim.x)) {
      const int row = i / kRowChunks, chunk = i % kRowChunks;
      if (Task::kOftenFew && first_row + row >= task.rows) continue;
      copy_async_16(
          to + chunk_byte(row, chunk),
          task.codes + task.row_at(first_row + row) * task.stride + unit * kQuantUnit + chunk * 16);
    }
  }

  __device__ void multiply(int64_t unit, const UnitCodes (&held)[kRowTiles]) {
    const char* from = shared_memory() + unit % kStages * kStageBytes;
    const auto [g, q] = lane_place();
    ScalePair features[kRowTiles] = {};
    if (task.by_unit) {
      HEADRACE_UNROLL
      for (int r = 0; r < kRowTiles; ++r) features[r] = task.weight_scales(tiles[r], unit);
    }
    HEADRACE_UNROLL
    for (int t = 0; t < kTokenTiles; ++t) {
      const int token = first_token + 8 * t;
      if (Task::kOftenFew && first_row + token >= task.rows) continue;
      UnitRow row;
      HEADRACE_UNROLL
      for (int h = 0; h < 2; ++h) {
        row.at[h] = *reinterpret_cast<const uint4*>(from + chunk_byte(token + g, 4 * h + q));
      }
      float scales[2] = {};
      if (task.by_unit) {
        HEADRACE_UNROLL
        for (int i = 0; i < 2; ++i) {
          scales[i] = task.row_scale(first_row + token + 2 * q + i, unit);
        }
      }
      typename Code::Sum products[kRowTiles][4] = {};
      HEADRACE_UNROLL
      for (int s = 0; s < kUnitSteps; ++s) {
        uint32_t b[2];
        row.step(s, b);
        HEADRACE_UNROLL
        for (int r = 0; r < kRowTiles; ++r) {
          uint32_t a[4];
          held[r].step(s, a);
          mma_16x8x32<Code>(products[r], a, b);
        }
      }
      HEADRACE_UNROLL
      for (int r = 0; r < kRowTiles; ++r) {
        sums[r][t].add(products[r], task.by_unit, features[r], scales);
      }
    }
  }

  /// A slice is complete.
  __device__ void add_slice() {
    HEADRACE_UNROLL
    for (int i = 0; i < kRowTiles * kTokenTiles * 4; ++i) {
      const int r = i / (kTokenTiles * 4), t = i / 4 % kTokenTiles, c = i % 4;
      totals[r][t][c] += sums[r][t].at[c];
      sums[r][t].at[c] = 0.0f;
    }
  }

  __device__ void put_totals(float* to, int stride) const {
    const auto [g, q] = lane_place();
    HEADRACE_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      const ScalePair scale = task.weight_scales(tiles[r], 0);
      HEADRACE_UNROLL
      for (int i = 0; i < kTokenTiles * 4; ++i) {
        const int t = i / 4, c = i % 4, token = first_token + 8 * t + 2 * q + c % 2;
        const float both = (c < 2 ? scale.low : scale.high) * task.row_scale(first_row + token, 0);
        to[token * stride + feature_warp * kWarpFeatures + kQuantTile * r + g + c / 2 * 8] =
            task.by_unit ? totals[r][t][c] : totals[r][t][c] * both;
      }
    }
  }
};

/// All of a block's features, from tile `feature_tile` of feature_warps * kWarpFeatures on, and of
/// rows [first_row, first_row + 64) of the task, to rows of `out` from `first_out` on. `find_rows`
/// is called ahead of what asks for rows.
template <class Code, class Task, class Find, class T, class Out>
__device__ void multiply_block(const Task& task, int feature_warps, int64_t feature_tile,
                               int64_t first_row, const Find& find_rows, int64_t first_out,
                               const LinearOutput<T, Out>& out) {
  const int64_t units = task.units;
  TileWarp<Code, Task> warp(task, feature_warps, feature_tile, first_row);
  UnitCodes next[kRowTiles];
  HEADRACE_UNROLL
  for (int r = 0; r < kRowTiles; ++r) next[r].load(warp.codes[r], 0);
  find_rows();
  HEADRACE_UNROLL
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < units) warp.load_rows(s);
    copy_async_commit();
  }
  int64_t unit = 0;
  HEADRACE_NO_UNROLL
  for (int slice = 0; slice < kQuantSlices; ++slice) {
    const int64_t end = slice_begin(units, slice + 1);
    HEADRACE_NO_UNROLL
    for (; unit < end; ++unit) {
      UnitCodes held[kRowTiles];
      HEADRACE_UNROLL
      for (int r = 0; r < kRowTiles; ++r) {
        held[r] = next[r];
        if (unit + 1 < units) next[r].load(warp.codes[r], unit + 1);
      }
      copy_async_wait<kStages - 2>();
      __syncthreads();
      if (unit + kStages - 1 < units) warp.load_rows(unit + kStages - 1);
      copy_async_commit();
      warp.multiply(unit, held);
    }
    warp.add_slice();
  }
  copy_async_wait<0>();
  __syncthreads();

  auto* sums = reinterpret_cast<float*>(shared_memory());
  const int features = feature_warps * kWarpFeatures, stride = features + kSumPadding;
  warp.put_totals(sums, stride);
  __syncthreads();
  const int64_t first = feature_tile * features;
  const auto rows = static_cast<int>(least<int64_t>(kTokens, task.rows - first_row));
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  if (feature_warps == kMostFeatureWarps) {
    write_sums<kMostFeatureWarps * kWarpFeatures>(sums, stride, rows, first_out, first, out, thread,
                                                  threads);
  } else if (feature_warps == 2) {
    write_sums<2 * kWarpFeatures>(sums, stride, rows, first_out, first, out, thread, threads);
  } else {
    write_sums<kWarpFeatures>(sums, stride, rows, first_out, first, out, thread, threads);
  }
}

}  // namespace headrace::cuda::many
