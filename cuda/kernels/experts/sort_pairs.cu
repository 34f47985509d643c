#include "cuda/kernels/experts/sort_pairs.h"

#include <limits>

#include "backend/contract/experts_op.h"
#include "cuda/device/reduce.cuh"
#include "cuda/kernels/launch.cuh"

namespace headrace::cuda {
namespace {

constexpr int kWarps = 16;
constexpr int kThreads = kWarps * kWarp;
constexpr int kExpertsEach = kMaxExperts / kThreads;
constexpr int kAtOnce = 4;  // rows whose ids a warp has under way
constexpr int kIdsEach = kMaxTopExperts / kWarp;

/// Pairs and tiles of an expert, or of all experts ahead of it.
struct Totals {
  int32_t pairs, tiles;
};

/// Of all threads ahead. `scratch`: one for each warp.
__device__ inline Totals totals_ahead(Totals own, Totals* scratch) {
  Totals sum = own;
  HEADRACE_UNROLL
  for (int step = 1; step < kWarp; step *= 2) {
    const int32_t pairs = __shfl_up_sync(kAllLanes, sum.pairs, static_cast<unsigned>(step));
    const int32_t tiles = __shfl_up_sync(kAllLanes, sum.tiles, static_cast<unsigned>(step));
    if (lane_id() < step) continue;
    sum.pairs += pairs;
    sum.tiles += tiles;
  }
  if (lane_id() == kWarp - 1) scratch[warp_id()] = sum;
  __syncthreads();
  Totals ahead{sum.pairs - own.pairs, sum.tiles - own.tiles};
  for (int w = 0; w < warp_id(); ++w) {
    ahead.pairs += scratch[w].pairs;
    ahead.tiles += scratch[w].tiles;
  }
  return ahead;
}

/// Calls visit(row, slot, id) for rows [begin, end) in order, each row's slots at once: by a warp.
template <class Visit>
__device__ inline void for_pairs(const SortPairsArgs& args, int begin, int end,
                                 const Visit& visit) {
  for (int row = begin; row < end; row += kAtOnce) {
    int32_t ids[kAtOnce][kIdsEach];
    HEADRACE_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      HEADRACE_UNROLL
      for (int j = 0; j < kIdsEach; ++j) {
        const int slot = j * kWarp + lane_id();
        const bool exists = row + i < end && slot < args.top_k;
        ids[i][j] =
            exists ? args.ids[int64_t{row + i} * args.ids_stride + slot] - args.first_expert : -1;
      }
    }
    HEADRACE_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      HEADRACE_UNROLL
      for (int j = 0; j < kIdsEach; ++j) {
        const int slot = j * kWarp + lane_id();
        if (row + i < end && slot < args.top_k) visit(row + i, slot, ids[i][j]);
      }
      __syncwarp();
    }
  }
}

/// An expert's counts of each warp's rows become the places of its pairs from `first` on.
__device__ inline void place_expert(int32_t* counts, int32_t expert, int32_t experts,
                                    int32_t first) {
  for (int w = 0; w < kWarps; ++w) {
    const int32_t count = counts[w * experts + expert];
    counts[w * experts + expert] = first;
    first += count;
  }
}

__device__ inline void list_tiles(const SortPairsArgs& args, int32_t expert, Totals first,
                                  Totals own, int64_t most) {
  for (int32_t i = 0; i < own.tiles && first.tiles + i < most; ++i) {
    const int32_t done = i * args.tile_rows;
    args.tiles[first.tiles + i] = {expert, first.pairs + done,
                                   least(own.pairs - done, args.tile_rows)};
  }
}

/// One block. Each warp has a run of rows, and counts and places of its own: pairs keep the order
/// of rows without waiting for other warps. A thread has kExpertsEach neighbouring experts.
__global__ void __launch_bounds__(kThreads)
    sort_pairs_kernel(SortPairsArgs args, int64_t most_tiles) {
  __shared__ Totals scratch[kWarps];
  __shared__ int32_t num_tiles;
  auto* counts = reinterpret_cast<int32_t*>(shared_memory());
  const int thread = static_cast<int>(threadIdx.x), first_expert = thread * kExpertsEach;
  for (int i = thread; i < kWarps * args.experts; i += kThreads) counts[i] = 0;
  start_next();
  wait_for_previous();
  __syncthreads();

  const auto rows = static_cast<int>(args.rows);
  const int used =
      args.used_rows == nullptr
          ? rows
          : least(rows, greatest(*args.used_rows - static_cast<int>(args.first_row), 0));
  const int run = divide_up(used, kWarps);
  const int begin = least(warp_id() * run, used), end = least(begin + run, used);
  int32_t* own_counts = counts + warp_id() * args.experts;
  const auto is_expert = [&](int32_t id) { return id >= 0 && id < args.experts; };
  for_pairs(args, begin, end, [&](int, int, int32_t id) {
    if (is_expert(id)) atomicAdd(&own_counts[id], 1);
  });
  __syncthreads();

  Totals own[kExpertsEach] = {}, sum = {};
  for (int i = 0; i < kExpertsEach && first_expert + i < args.experts; ++i) {
    for (int w = 0; w < kWarps; ++w) {
      own[i].pairs += counts[w * args.experts + first_expert + i];
    }
    own[i].tiles = divide_up(own[i].pairs, args.tile_rows);
    sum.pairs += own[i].pairs;
    sum.tiles += own[i].tiles;
  }
  Totals first = totals_ahead(sum, scratch);
  for (int i = 0; i < kExpertsEach && first_expert + i < args.experts; ++i) {
    list_tiles(args, first_expert + i, first, own[i], most_tiles);
    place_expert(counts, first_expert + i, args.experts, first.pairs);
    first.pairs += own[i].pairs;
    first.tiles += own[i].tiles;
  }
  if (thread == kThreads - 1) {
    num_tiles = first.tiles;
    if (args.num_pairs != nullptr) *args.num_pairs = first.pairs;
  }
  __syncthreads();
  for (int64_t i = num_tiles + thread; i < most_tiles; i += kThreads) args.tiles[i] = {};
  for_pairs(args, begin, end, [&](int row, int slot, int32_t id) {
    int32_t place = -1;
    if (is_expert(id)) {
      place = atomicAdd(&own_counts[id], 1);
      args.pair_rows[place] = row;
    }
    args.places[row * args.top_k + slot] = place;
  });
  for (int64_t i = used * args.top_k + thread; i < rows * args.top_k; i += kThreads) {
    args.places[i] = -1;
  }
}

}  // namespace

void sort_pairs(const SortPairsArgs& args, Stream stream) {
  HEADRACE_CHECK(args.experts >= 1 && args.experts <= kMaxExperts, args.experts);
  HEADRACE_CHECK(args.top_k >= 1 && args.top_k <= kMaxTopExperts && args.tile_rows >= 1, args.top_k,
                 " in ", args.tile_rows);
  HEADRACE_CHECK(args.rows <= std::numeric_limits<int32_t>::max() / args.top_k, args.rows, " x ",
                 args.top_k);
  if (args.rows == 0) return;
  const LaunchShape shape{
      .grid = {1},
      .threads = kThreads,
      .shared_bytes = sizeof(int32_t) * kWarps * static_cast<size_t>(args.experts),
      .overlaps = true};
  launch("sort_pairs", sort_pairs_kernel, shape, stream, args,
         most_expert_tiles(args.rows, args.top_k, args.experts, args.tile_rows));
}

}  // namespace headrace::cuda
