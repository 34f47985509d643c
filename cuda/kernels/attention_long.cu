#include "cuda/kernels/attention_warp.cuh"

// Long pieces where there is no wgmma: each of a block's 4 warps takes 16 rows, all of their keys
// and columns.

namespace headrace::cuda {
namespace {

constexpr int kWarps = kLongRows / 16;
constexpr int kThreads = kWarps * kWarp;

template <class T_, int kHeadDim_>
struct Config {
  using T = T_;
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kSteps = kHeadDim / 16;
  static constexpr int kChunks = kHeadDim / 8;  // of 16 bytes
  using Places = RowPlaces<kChunks>;
  static constexpr int kTileBytes = kTileKeys * Places::kStride * 16;
  // A block of sm_86 has 99 KiB. Large heads: a tile's values take the place of its keys.
  static constexpr bool kLarge = kHeadDim > 128;
  static constexpr int kStages = kLarge ? 1 : 2;
  static constexpr int kStageBytes = kLarge ? kTileBytes : 2 * kTileBytes;
  static constexpr int kFoldBytes = kLongRows * kHeadDim * 4;
  static constexpr int kSharedBytes = kStages * kStageBytes + kFoldBytes;
  static constexpr int kBlocks = 2;  // of sm_90
  static_assert(kSharedBytes <= 99 << 10);
};

template <class C>
using Task = AttentionTask<typename C::T, typename C::T>;

/// Adds a finished split to what shared memory holds of the splits before (element i of the sums of
/// every thread side by side).
template <class C>
__device__ void fold_split(float* held, bool first, WarpState<C>& state) {
  const Fold folds[2] = {{state.held_max[0], state.max[0]}, {state.held_max[1], state.max[1]}};
  for (int i = 0; i < 2; ++i) {
    state.held_max[i] = folds[i].max;
    state.held_totals[i] = folds[i](state.held_totals[i], state.totals[i]);
  }
  HEADRACE_UNROLL
  for (int i = 0; i < C::kChunks * 4; ++i) {
    float& kept = held[i * kThreads + static_cast<int>(threadIdx.x)];
    kept = folds[i % 4 / 2](first ? 0.0f : kept, state.sums[i / 4][i % 4]);
  }
}

template <class C>
__device__ void write_results(const Task<C>& task, const AttentionPiece& piece,
                              const LaneRows& rows, const float* held, const WarpState<C>& state) {
  HEADRACE_UNROLL
  for (int i = 0; i < 2; ++i) {
    float total = state.held_totals[i];
    total += __shfl_xor_sync(kAllLanes, total, 1);
    total += __shfl_xor_sync(kAllLanes, total, 2);
    if (!rows.exists[i]) continue;
    auto* out = task.out + (piece.item.row + piece.token(task.shape, rows.m[i])) * task.out_stride +
                int64_t{piece.head(task.shape, rows.m[i])} * C::kHeadDim + 2 * lane_place().q;
    const float factor = 1.0f / total;
    HEADRACE_UNROLL
    for (int n = 0; n < C::kChunks; ++n) {
      const float* from = held + (4 * n + 2 * i) * kThreads + threadIdx.x;
      *reinterpret_cast<uint32_t*>(out + 8 * n) =
          pack_pair<typename C::T>(from[0] * factor, from[kThreads] * factor);
    }
  }
}

/// Where a block's tiles come from: warps copy 16 keys of each.
template <class C>
struct Tiles {
  const Task<C>& task;
  const AttentionPiece& piece;
  char* memory;
  int32_t begin, end;
  SplitRows rows;
  int32_t split = -1;

  __device__ char* stage(int32_t tile) const {
    return memory + (tile - begin) % C::kStages * C::kStageBytes;
  }
  __device__ void copy(const typename C::T* cache, int32_t tile, char* to) {
    constexpr int kRows = kTileKeys / kWarps;
    constexpr int32_t kTilesPerSplit = kSplitKeys / kTileKeys;
    if (tile >= end) return;
    if (tile / kTilesPerSplit != split) {
      split = tile / kTilesPerSplit;
      rows = split_rows(task, piece, split);
    }
    const int first = warp_id() * kRows, key = tile % kTilesPerSplit * kTileKeys + first;
    to += first * C::Places::kStride * 16;
    if (key >= rows.seen.end || key + kRows <= rows.seen.first) {
      // What a row doesn't see is multiplied by 0, and is to be a number.
      for (int i = lane_id(); i < kRows * C::Places::kStride; i += kWarp) {
        *reinterpret_cast<uint4*>(to + i * 16) = {0, 0, 0, 0};
      }
    } else {
      copy_rows<kRows, C::kChunks, C::kChunks>(cache, rows, key, 0, to);
    }
  }
  /// Both, on their way.
  __device__ void load(int32_t tile) {
    copy(task.keys, tile, stage(tile));
    copy(task.values, tile, stage(tile) + C::kTileBytes);
    copy_async_commit();
  }
  /// One, there for all.
  __device__ void load_now(const typename C::T* cache, int32_t tile) {
    __syncthreads();
    copy(cache, tile, stage(tile));
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
  }
};

template <class C>
__device__ void attend_tile(const Task<C>& task, const AttentionPiece& piece, const LaneRows& rows,
                            int32_t tile, Tiles<C>& tiles, WarpState<C>& state) {
  if constexpr (C::kLarge) {
    tiles.load_now(task.keys, tile);
  } else {
    copy_async_wait<0>();
    __syncthreads();  // behind it nobody reads the stage that the next load fills
    tiles.load(tile + 1);
  }
  const char* const stage = tiles.stage(tile);
  TileScores scores = {};
  score_tile(
      stage, state,
      [&](int step, uint32_t (&query)[4]) {
        load_query<C::kHeadDim>(task, piece, rows, step, query);
      },
      scores);
  mask_scores(rows, tile * kTileKeys, scores);
  soften_tile<C>(task.scale, scores, state);
  if constexpr (C::kLarge) tiles.load_now(task.values, tile);
  add_values<C>(scores, C::kLarge ? stage : stage + C::kTileBytes, state);
}

template <class C>
__device__ void attend(const Task<C>& task, const AttentionPiece& piece, char* shared) {
  auto* held = reinterpret_cast<float*>(shared + C::kStages * C::kStageBytes);
  const LaneRows rows = lane_rows(task.shape, piece, 16 * warp_id());
  WarpState<C> state;
  if constexpr (!C::kLarge) {
    HEADRACE_UNROLL
    for (int step = 0; step < C::kSteps; ++step) {
      load_query<C::kHeadDim>(task, piece, rows, step, state.queries[step]);
    }
  }
  const KeyRange seen = keys_of(piece.item, task.shape);
  Tiles<C> tiles{.task = task,
                 .piece = piece,
                 .memory = shared,
                 .begin = seen.first / kTileKeys,
                 .end = divide_up(seen.end, kTileKeys),
                 .rows = {}};
  state.start_split();
  bool first = true;
  if constexpr (!C::kLarge) tiles.load(tiles.begin);
  HEADRACE_NO_UNROLL
  for (int32_t tile = tiles.begin; tile < tiles.end; ++tile) {
    attend_tile<C>(task, piece, rows, tile, tiles, state);
    if (tile + 1 < tiles.end && (tile + 1) % (kSplitKeys / kTileKeys) != 0) continue;
    fold_split<C>(held, first, state);
    state.start_split();
    first = false;
  }
  write_results<C>(task, piece, rows, held, state);
}

template <class C>
__global__ void __launch_bounds__(kThreads, C::kBlocks) attention_long_kernel(Task<C> task) {
  char* shared = shared_memory();
  start_next();
  wait_for_previous();
  const int64_t count = piece_count(task);
  HEADRACE_NO_UNROLL
  for (int64_t p = blockIdx.x; p < count; p += gridDim.x) {
    attend<C>(task, piece_at(task, p), shared);
    __syncthreads();
  }
}

template <class C>
void run(const AttentionArgs& args, Stream stream) {
  using T = typename C::T;
  launch(
      "attention_long", attention_long_kernel<C>,
      {.grid = {work_grid(args.long_items.expected, args.shape, args.multiprocessors, C::kBlocks)},
       .threads = kThreads,
       .shared_bytes = C::kSharedBytes,
       .overlaps = true},
      stream, attention_task<T, T>(args, args.long_items));
}

}  // namespace

bool can_use_mma(const AttentionArgs& args) {
  const int32_t d = args.shape.head_dim;
  const auto aligned = [](const void* data, int64_t stride) {
    return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
  };
  return (args.dtype == DType::kBF16 || args.dtype == DType::kF16) &&
         args.dtype == args.cache_dtype &&
         (d == 64 || d == 80 || d == 96 || d == 128 || d == 256) && args.scale > 0.0f &&
         args.layout.block_size % kResolvedKeys == 0 && aligned(args.q.data, args.q.stride) &&
         aligned(args.out.data, args.out.stride) && aligned(args.keys, 0) &&
         aligned(args.values, 0);
}

void attention_mma_long(const AttentionArgs& args, Stream stream) {
  if (args.long_items.expected <= 0) return;
  with_half(args.dtype, [&](auto element) {
    with_mma_head_dim(args.shape.head_dim, [&](auto head_dim) {
      run<Config<decltype(element), decltype(head_dim)::value>>(args, stream);
    });
  });
}

}  // namespace headrace::cuda
