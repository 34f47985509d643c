#pragma once

// A block's products where there are few rows: it has some tiles of features and all rows, and its
// warps also share k out. A lane reads codes of the weight from memory, those of rows from the
// caches, a unit ahead of the products.

#include "cuda/kernels/rounded/rounded_task.cuh"

namespace headrace::cuda::few {

inline constexpr int kMostTiles = 4;  // of features, of a block
inline constexpr int kSumPadding = 4;

/// Most threads of a block, by what a thread's registers hold.
constexpr int most_threads(int token_tiles) {
  return kQuantSlices * kWarp * (token_tiles == 4 ? kMostTiles / 2 : kMostTiles);
}
constexpr int block_threads(int tiles) { return tiles * kQuantSlices * kWarp; }
constexpr int sum_stride(int tiles) { return tiles * kQuantTile + kSumPadding; }
constexpr int sum_bytes(int tiles, int token_tiles) {
  return static_cast<int>(sizeof(float)) * kQuantSlices * 8 * token_tiles * sum_stride(tiles);
}

/// All that a lane multiplies of a unit.
template <class Code, int kTokenTiles>
struct FewUnit {
  UnitCodes codes;
  UnitRow rows[kTokenTiles];
  ScalePair features;
  float scales[kTokenTiles][2];

  template <class Task>
  __device__ void load(const Task& task, int64_t tile, int64_t unit) {
    const auto [g, q] = lane_place();
    HEADRACE_UNROLL
    for (int t = 0; t < kTokenTiles; ++t) {
      const int64_t row = task.row_at(8 * t + g);
      rows[t].load(task.codes + row * task.stride + unit * kQuantUnit + q * 16);
      HEADRACE_UNROLL
      for (int i = 0; i < 2; ++i) {
        scales[t][i] = task.by_unit ? task.row_scale(8 * t + 2 * q + i, unit) : 0.0f;
      }
    }
    features = task.by_unit ? task.weight_scales(tile, unit) : ScalePair{};
  }

  __device__ void add_to(RoundedSums (&sums)[kTokenTiles], bool by_unit) const {
    typename Code::Sum products[kTokenTiles][4] = {};
    HEADRACE_UNROLL
    for (int s = 0; s < kUnitSteps; ++s) {
      uint32_t a[4];
      codes.step(s, a);
      HEADRACE_UNROLL
      for (int t = 0; t < kTokenTiles; ++t) {
        uint32_t b[2];
        rows[t].step(s, b);
        mma_16x8x32<Code>(products[t], a, b);
      }
    }
    HEADRACE_UNROLL
    for (int t = 0; t < kTokenTiles; ++t) sums[t].add(products[t], by_unit, features, scales[t]);
  }
};

/// Adds up the slices' sums, in `totals` as [slice][token][feature], `stride` floats apart, and
/// multiplies them by the scales of whole features and rows.
template <int kTokenTiles, class Task>
__device__ void add_slices(const Task& task, int64_t tile, int slice, float* totals, int stride,
                           const RoundedSums (&sums)[kTokenTiles]) {
  constexpr int kTokens = 8 * kTokenTiles;
  const auto [g, q] = lane_place();
  float* const own = totals + 2 * q * stride + g;
  const auto place = [stride](int i) { return (i / 4 * 8 + i % 2) * stride + i % 4 / 2 * 8; };
  HEADRACE_UNROLL
  for (int i = 0; i < kTokenTiles * 4; ++i) {
    own[slice * kTokens * stride + place(i)] = sums[i / 4].at[i % 4];
  }
  __syncthreads();
  if (slice == 0) {  // the lanes whose features and rows they are, which have the scales
    const ScalePair scale = task.weight_scales(tile, 0);
    HEADRACE_UNROLL
    for (int i = 0; i < kTokenTiles * 4; ++i) {
      float* at = own + place(i);
      float total = 0.0f;
      HEADRACE_UNROLL
      for (int s = 0; s < kQuantSlices; ++s) total += at[s * kTokens * stride];
      const int token = i / 4 * 8 + 2 * q + i % 2;
      const float both = (i % 4 < 2 ? scale.low : scale.high) * task.row_scale(token, 0);
      *at = task.by_unit ? total : total * both;
    }
  }
  __syncthreads();
}

/// All of block `block` of features, `tiles` tiles, to rows of `out` from `first_row` on. `Task`:
/// RoundedTask, or what says as much. `find_rows` is called ahead of what asks for rows.
template <class Code, int kTokenTiles, class Task, class Find, class T, class Out>
__device__ void multiply_block(const Task& task, int tiles, int64_t block, const Find& find_rows,
                               int64_t first_row, const LinearOutput<T, Out>& out) {
  const int slice = warp_id() / tiles, tile_in_block = warp_id() % tiles;
  const int64_t tile = block * tiles + tile_in_block;
  const int64_t begin = slice_begin(task.units, slice), end = slice_begin(task.units, slice + 1);
  const uint8_t* from = task.tile_codes(tile);
  FewUnit<Code, kTokenTiles> next;
  if (begin < end) next.codes.load(from, begin);
  find_rows();
  if (begin < end) next.load(task, tile, begin);

  RoundedSums sums[kTokenTiles];
  HEADRACE_NO_UNROLL
  for (int64_t unit = begin; unit < end; ++unit) {
    const FewUnit<Code, kTokenTiles> own = next;
    if (unit + 1 < end) {
      next.codes.load(from, unit + 1);
      next.load(task, tile, unit + 1);
    }
    own.add_to(sums, task.by_unit);
  }

  const int features = tiles * kQuantTile, stride = sum_stride(tiles);
  auto* totals = reinterpret_cast<float*>(shared_memory());
  add_slices(task, tile, slice, totals + tile_in_block * kQuantTile, stride, sums);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int rows = static_cast<int>(task.rows);
  if (tiles == kMostTiles) {
    write_sums<kMostTiles * kQuantTile>(totals, stride, rows, first_row, block * features, out,
                                        thread, threads);
  } else {
    write_sums<kMostTiles / 2 * kQuantTile>(totals, stride, rows, first_row, block * features, out,
                                            thread, threads);
  }
}

}  // namespace headrace::cuda::few
