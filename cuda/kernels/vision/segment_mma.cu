#include "cuda/kernels/attention/attention_warp.cuh"
#include "cuda/kernels/vision/segment_task.cuh"

// Each of a block's 4 warps takes 16 rows of an item, all keys of its segment and all columns of a
// head. Heads are padded with zeros to groups of 16.

namespace headrace::cuda {
namespace {

constexpr int kWarps = kSegmentRows / 16;
constexpr int kThreads = kWarps * kWarp;

template <class T_, int kSteps_>
struct Config {
  using T = T_;
  static constexpr int kSteps = kSteps_;
  static constexpr int kChunks = 2 * kSteps;  // of 16 bytes
  static constexpr bool kLarge = false;
  using Places = RowPlaces<kChunks>;
  static constexpr int kTileBytes = kTileKeys * Places::kStride * 16;
  static constexpr int kStages = 2;
  static constexpr int kStageBytes = 2 * kTileBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes;
  static constexpr int kBlocks = kSteps > 5 ? 2 : 3;  // of a multiprocessor
  static_assert(kSharedBytes <= 99 << 10);
};

/// Starts copies of a tile's rows, zeros beyond the segment and beyond the head, by the block.
template <class C>
__device__ void copy_tile(const typename C::T* from, int64_t stride, int32_t rows, int32_t chunks,
                          char* to) {
  HEADRACE_UNROLL
  for (int i = 0; i < kTileKeys * C::kChunks / kThreads; ++i) {
    const int vector = i * kThreads + static_cast<int>(threadIdx.x);
    const int row = vector / C::kChunks, column = vector % C::kChunks;
    const bool exists = row < rows && column < chunks;
    copy_async_16(to + C::Places::at(row, column),
                  from + (exists ? row * stride + int64_t{column} * 8 : 0), exists ? 16 : 0);
  }
}

/// The tiles of a segment's keys and values, one ahead of the one that is used.
template <class C>
struct SegmentTiles {
  const typename C::T* keys;
  const typename C::T* values;
  int64_t k_stride, v_stride;
  int32_t num_keys, chunks;
  char* memory;

  __device__ int32_t count() const { return divide_up(num_keys, int32_t{kTileKeys}); }
  __device__ char* stage(int32_t tile) const { return memory + tile % C::kStages * C::kStageBytes; }
  __device__ void load(int32_t tile) const {
    if (tile < count()) {
      const int32_t key = tile * kTileKeys, rows = num_keys - key;
      copy_tile<C>(keys + key * k_stride, k_stride, rows, chunks, stage(tile));
      copy_tile<C>(values + key * v_stride, v_stride, rows, chunks, stage(tile) + C::kTileBytes);
    }
    copy_async_commit();
  }
};

/// Of a lane's two rows: their places in q and out.
struct QueryRows {
  int64_t at[2];
  bool exists[2];
};

template <class C>
__device__ void load_queries(const SegmentTask<typename C::T>& task, const QueryRows& rows,
                             int64_t column, WarpState<C>& state) {
  HEADRACE_UNROLL
  for (int step = 0; step < C::kSteps; ++step) {
    HEADRACE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int row = i % 2, at = 16 * step + i / 2 * 8 + 2 * lane_place().q;
      const auto* from = task.q + rows.at[row] * task.q_stride + column + at;
      const bool exists = rows.exists[row] && at < task.head_dim;
      state.queries[step][i] = exists ? *reinterpret_cast<const uint32_t*>(from) : 0;
    }
  }
}

template <class C>
__device__ void write_rows(const SegmentTask<typename C::T>& task, const QueryRows& rows,
                           int64_t column, WarpState<C>& state) {
  HEADRACE_UNROLL
  for (int i = 0; i < 2; ++i) {
    float total = state.totals[i];
    total += __shfl_xor_sync(kAllLanes, total, 1);
    total += __shfl_xor_sync(kAllLanes, total, 2);
    const float factor = 1.0f / total;
    auto* to = task.out + rows.at[i] * task.out_stride + column + 2 * lane_place().q;
    HEADRACE_UNROLL
    for (int n = 0; n < C::kChunks; ++n) {
      if (!rows.exists[i] || 8 * n >= task.head_dim) continue;
      *reinterpret_cast<uint32_t*>(to + 8 * n) = pack_pair<typename C::T>(
          state.sums[n][2 * i] * factor, state.sums[n][2 * i + 1] * factor);
    }
  }
}

/// One item and head.
template <class C>
__global__ void __launch_bounds__(kThreads, C::kBlocks)
    segment_mma_kernel(SegmentTask<typename C::T> task) {
  char* shared = shared_memory();
  start_next();
  wait_for_previous();
  const SegmentItem item = task.items[blockIdx.x];
  const ItemRows own = rows_of(task, item);
  if (own.count == 0) return;
  const int64_t column = int64_t{blockIdx.y} * task.head_dim;
  const SegmentTiles<C> tiles{task.k + item.first_key * task.k_stride + column,
                              task.v + item.first_key * task.v_stride + column,
                              task.k_stride,
                              task.v_stride,
                              item.end_key - item.first_key,
                              task.head_dim / 8,
                              shared};
  tiles.load(0);
  const int first = 16 * warp_id();
  QueryRows rows;
  LaneRows seen{};  // all rows see the segment's keys
  for (int i = 0; i < 2; ++i) {
    const int m = first + lane_place().g + 8 * i;
    rows.exists[i] = m < own.count;
    rows.at[i] = own.first + (rows.exists[i] ? m : 0);
    seen.keys[i] = {0, tiles.num_keys};
  }
  WarpState<C> state;
  state.start_split();
  load_queries<C>(task, rows, column, state);
  HEADRACE_NO_UNROLL
  for (int32_t tile = 0; tile < tiles.count(); ++tile) {
    copy_async_wait<0>();
    __syncthreads();  // behind it nobody reads the stage that the next load fills
    tiles.load(tile + 1);
    if (first >= own.count) continue;  // the warp has no rows
    const char* const stage = tiles.stage(tile);
    TileScores scores = {};
    score_tile(stage, state, [](int, uint32_t (&)[4]) {}, scores);
    const int32_t base = tile * kTileKeys;
    if (base + kTileKeys > tiles.num_keys) mask_scores(seen.keys, base, scores);
    soften_tile<C>(task.scale, scores, state);
    add_values<C>(scores, stage + C::kTileBytes, state);
  }
  if (first < own.count) write_rows<C>(task, rows, column, state);
}

template <class C>
void run(const SegmentAttentionArgs& args, Stream stream) {
  launch("segment_attention_mma", segment_mma_kernel<C>,
         {.grid = {grid_size(args.num_items), grid_size(args.heads)},
          .threads = kThreads,
          .shared_bytes = C::kSharedBytes,
          .overlaps = true},
         stream, segment_task<typename C::T>(args));
}

/// Calls f(Int<steps>{}) for a head of so many columns, or more.
template <class F>
void with_steps(int32_t head_dim, F&& f) {
  if (head_dim <= 32) return f(Int<2>{});
  if (head_dim <= 64) return f(Int<4>{});
  if (head_dim <= 80) return f(Int<5>{});
  if (head_dim <= 96) return f(Int<6>{});
  return f(Int<8>{});
}

}  // namespace

void segment_attention_mma(const SegmentAttentionArgs& args, Stream stream) {
  with_half(args.dtype, [&](auto element) {
    with_steps(args.head_dim, [&](auto steps) {
      run<Config<decltype(element), decltype(steps)::value>>(args, stream);
    });
  });
}

}  // namespace headrace::cuda
