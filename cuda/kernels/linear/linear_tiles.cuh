#pragma once

// A product of many rows by tiles of mma.sync: the parts that don't depend on where tokens lie.

#include "cuda/device/cp_async.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/kernels/linear/linear_epilogue.cuh"

namespace headrace::cuda::tiles {

inline constexpr int kWarpFeatures = 64, kWarpTokens = 32;  // of a warp's part of a block's tile
inline constexpr int kRowTiles = kWarpFeatures / 16, kTokenTiles = kWarpTokens / 8;
inline constexpr int kUnit = static_cast<int>(kWeightColUnit);
inline constexpr int kRowBytes =
    kUnit * 2;  // of a tile's row in shared memory: eight chunks of 16 bytes
inline constexpr int kChunks = kRowBytes / 16;
inline constexpr int kSumPadding = 4;

/// A block's tile.
template <int kFeatures_, int kTokens_>
struct Tile {
  static constexpr int kFeatures = kFeatures_;
  static constexpr int kTokens = kTokens_;
  static constexpr int kFeatureWarps = kFeatures / kWarpFeatures;
  static constexpr int kThreads = kFeatureWarps * (kTokens / kWarpTokens) * kWarp;
  static constexpr int kStageBytes = (kFeatures + kTokens) * kRowBytes;
  static constexpr int kStages = kTokens == 128 ? 3 : 4;
  static constexpr int kSumStride = kFeatures + kSumPadding;
  static constexpr size_t kSharedBytes =
      greatest(size_t{kStages} * kStageBytes, sizeof(float) * kTokens * kSumStride);
  static_assert(kSharedBytes <= 99 << 10, "sm_86 has no more");
};

/// Byte of a chunk in a tile: ldmatrix, which takes a chunk of 8 rows, meets every bank once, and
/// so do copies of a row.
__device__ inline int chunk_byte(int row, int chunk) {
  return row * kRowBytes + (chunk ^ (row & 7)) * 16;
}

/// Unit `unit` of k of C::kFeatures stored rows from `first` on, of which `stored_rows` exist.
template <class C, class T>
__device__ void load_weight(const T* weight, int64_t stride, int64_t stored_rows, int64_t first,
                            int64_t unit, char* stage) {
  HEADRACE_UNROLL
  for (int i = static_cast<int>(threadIdx.x); i < C::kFeatures * kChunks; i += C::kThreads) {
    const int row = i / kChunks, chunk = i % kChunks;
    const bool exists = first + row < stored_rows;
    copy_async_16(stage + chunk_byte(row, chunk),
                  weight + (first + (exists ? row : 0)) * stride + unit * kUnit + chunk * 8,
                  exists ? 16 : 0);
  }
}

/// Eight elements of a token from `k` on, zeros beyond `end`. `to` is the chunk's place.
template <class T>
__device__ inline void load_token_chunk(const T* token, int64_t k, int64_t end, bool vectors,
                                        char* to) {
  const int count = static_cast<int>(least<int64_t>(greatest<int64_t>(end - k, 0), 8));
  const T* from = token + (count > 0 ? k : 0);
  if (vectors) return copy_async_16(to, from, count * 2);
  auto* elements = reinterpret_cast<T*>(to);
  for (int j = 0; j < 8; ++j) elements[j] = j < count ? from[j] : T{0};
}

using WarpSums = float[kRowTiles][kTokenTiles][4];

/// sums += the products of a stage.
template <class C, class T>
__device__ void multiply_stage(const char* stage, int first_feature, int first_token,
                               WarpSums& sums) {
  const char* tokens = stage + C::kFeatures * kRowBytes;
  const int lane = lane_id();
  HEADRACE_UNROLL
  for (int step = 0; step < kUnit / 16; ++step) {
    uint32_t b[kTokenTiles][2];
    HEADRACE_UNROLL
    for (int t = 0; t < kTokenTiles; t += 2) {
      uint32_t two[4];
      load_matrices(two, tokens + chunk_byte(first_token + 8 * t + lane / 16 * 8 + lane % 8,
                                             2 * step + lane / 8 % 2));
      for (int i = 0; i < 4; ++i) b[t + i / 2][i % 2] = two[i];
    }
    HEADRACE_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      uint32_t a[4];
      load_matrices(a,
                    stage + chunk_byte(first_feature + 16 * r + lane % 16, 2 * step + lane / 16));
      HEADRACE_UNROLL
      for (int t = 0; t < kTokenTiles; ++t) mma_16x8x16<T>(sums[r][t], a, b[t]);
    }
  }
}

/// Where a warp's part of the tile begins. Warps are [C::kFeatureWarps along features][along
/// tokens].
template <class C>
__device__ inline int warp_feature() {
  return warp_id() % C::kFeatureWarps * kWarpFeatures;
}
template <class C>
__device__ inline int warp_token() {
  return warp_id() / C::kFeatureWarps * kWarpTokens;
}

/// A block's sums to rows [first_row, first_row + rows) of `out`; stored rows from `first` on. What
/// was copied to `shared` is lost.
template <class C, class T, class Out>
__device__ void write_tile(const WarpSums& sums, char* shared, int rows, int64_t first_row,
                           int64_t first, const LinearOutput<T, Out>& out) {
  copy_async_wait<0>();
  __syncthreads();
  auto* tile = reinterpret_cast<float*>(shared);
  const auto [g, q] = lane_place();
  HEADRACE_UNROLL
  for (int i = 0; i < kRowTiles * kTokenTiles * 4; ++i) {
    const int r = i / (kTokenTiles * 4), t = i / 4 % kTokenTiles, c = i % 4;
    tile[(warp_token<C>() + 8 * t + 2 * q + c % 2) * C::kSumStride + warp_feature<C>() + 16 * r +
         g + c / 2 * 8] = sums[r][t][c];
  }
  __syncthreads();
  write_sums<C::kFeatures>(tile, C::kSumStride, rows, first_row, first, out,
                           static_cast<int>(threadIdx.x), C::kThreads);
}

}  // namespace headrace::cuda::tiles
