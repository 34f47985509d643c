#pragma once

// Long pieces where there is no wgmma, and of codes: each of a block's 4 warps takes 16 rows, all
// of their keys and columns. Codes (attention_codes.cuh) are widened by each warp for itself.

#include "cuda/kernels/attention/attention_codes.cuh"
#include "cuda/kernels/attention/attention_warp.cuh"

namespace headrace::cuda {
namespace long_pieces {

inline constexpr int kWarps = kLongRows / 16;
inline constexpr int kThreads = kWarps * kWarp;

template <class T_, class Cache_, int kHeadDim_>
struct Config {
  using T = T_;
  using Cache = Cache_;
  static constexpr bool kCodes = CodeTraits<Cache>::kCodes;
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kVectors = divide_up(kHeadDim, code_columns<Cache>());  // of 16 bytes
  static constexpr int kSteps = kVectors * code_columns<Cache>() / 16;
  // Registers have no room for the sums of large heads of codes, beside what makes numbers of them:
  // their columns are made one half after the other. From 128 columns on queries are in shared
  // memory.
  static constexpr int kPasses = kCodes && kHeadDim > 128 ? 2 : 1;
  static constexpr bool kSharesQueries = kCodes && kHeadDim >= 128;
  static constexpr int kChunks = 2 * kSteps / kPasses;  // of 8 columns, of a pass
  using Places = RowPlaces<kVectors>;
  static constexpr int kTileBytes = kTileKeys * Places::kStride * 16;
  // A block of sm_86 has 99 KiB. Large heads: a tile's values take the place of its keys.
  static constexpr bool kLarge = kHeadDim > 128;
  static constexpr int kStages = kLarge ? 1 : 2;
  static constexpr int kStageBytes = kLarge ? kTileBytes : 2 * kTileBytes;
  static constexpr int kFoldBytes = kLongRows * kChunks * 8 * 4;
  static constexpr int kScaleBytes = kCodes ? kStages * static_cast<int>(sizeof(TileScales)) : 0;
  static constexpr int kQueryBytes = kSharesQueries ? kWarps * kSteps * kWarp * 16 : 0;
  static constexpr int kSharedBytes =
      kStages * kStageBytes + kFoldBytes + kScaleBytes + kQueryBytes;
  static constexpr int kBlocks = 2;  // of sm_90
  static_assert(kSharedBytes <= 99 << 10);
};

template <class C>
using Task = AttentionTask<typename C::T, typename C::Cache>;

/// A lane's rows of codes.
template <class C>
struct CodeRows {
  CodeQueries<typename C::Cache> queries;
  uint4* shared;        // the warp's queries, [step][lane], where they are there
  float zeros[2] = {};  // of the split that is under way
};

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
                              const LaneRows& rows, int pass, const float* held,
                              const WarpState<C>& state) {
  HEADRACE_UNROLL
  for (int i = 0; i < 2; ++i) {
    float total = state.held_totals[i];
    total += __shfl_xor_sync(kAllLanes, total, 1);
    total += __shfl_xor_sync(kAllLanes, total, 2);
    if (!rows.exists[i]) continue;
    auto* out = task.out + (piece.item.row + piece.token(task.shape, rows.m[i])) * task.out_stride +
                int64_t{piece.head(task.shape, rows.m[i])} * C::kHeadDim +
                pass * (C::kHeadDim / C::kPasses);
    const float factor = output_factor(task, piece, rows.m[i], total, state.held_max[i]);
    const auto sum = [&](int chunk, int place) {
      return held[(4 * chunk + 2 * i + place) * kThreads + static_cast<int>(threadIdx.x)] * factor;
    };
    if constexpr (C::kCodes) {
      using Code = typename C::Cache;
      constexpr int kColumns = CodeVector<Code>::kLaneColumns;
      HEADRACE_UNROLL
      for (int n = 0; n < C::kVectors / C::kPasses * kColumns; n += 2) {
        const int v = n / kColumns, j = n % kColumns;
        const int column = CodeVector<Code>::kColumns * v + kColumns * lane_place().q + j;
        if (column >= C::kHeadDim / C::kPasses) continue;
        *reinterpret_cast<uint32_t*>(out + column) =
            pack_pair<typename C::T>(sum(sum_chunk<Code>(v, j), sum_place<Code>(j)),
                                     sum(sum_chunk<Code>(v, j + 1), sum_place<Code>(j + 1)));
      }
    } else {
      HEADRACE_UNROLL
      for (int n = 0; n < C::kChunks; ++n) {
        *reinterpret_cast<uint32_t*>(out + 8 * n + 2 * lane_place().q) =
            pack_pair<typename C::T>(sum(n, 0), sum(n, 1));
      }
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
  static constexpr int32_t kTilesPerSplit = kSplitKeys / kTileKeys;

  __device__ char* stage(int32_t tile) const {
    return memory + (tile - begin) % C::kStages * C::kStageBytes;
  }
  /// Of the stage; behind all stages and what is folded.
  __device__ TileScales& scales(int32_t tile) const {
    return reinterpret_cast<TileScales*>(memory + C::kStages * C::kStageBytes +
                                         C::kFoldBytes)[(tile - begin) % C::kStages];
  }
  __device__ void resolve(int32_t tile) {
    if (tile / kTilesPerSplit == split) return;
    split = tile / kTilesPerSplit;
    rows = split_rows(task, piece, split);
  }
  __device__ void copy(const typename C::Cache* cache, int32_t tile, char* to) {
    constexpr int kRows = kTileKeys / kWarps;
    if (tile >= end) return;
    resolve(tile);
    const int first = warp_id() * kRows, key = tile % kTilesPerSplit * kTileKeys + first;
    to += first * C::Places::kStride * 16;
    if (key >= rows.seen.end || key + kRows <= rows.seen.first) {
      // What a row doesn't see is multiplied by 0, and is to be a number.
      for (int i = lane_id(); i < kRows * C::Places::kStride; i += kWarp) {
        *reinterpret_cast<uint4*>(to + i * 16) = {0, 0, 0, 0};
      }
    } else {
      copy_rows<kRows, C::kVectors, C::kVectors>(cache, rows, key, 0, to);
    }
  }
  /// By one warp.
  __device__ void copy_tile_scales(int32_t tile) {
    if (tile >= end || warp_id() != 0) return;
    resolve(tile);
    copy_scales(task, rows, tile % kTilesPerSplit, scales(tile));
  }
  /// Once they have landed, before others look.
  __device__ void finish_scales(int32_t tile) {
    if (warp_id() != 0) return;
    const KeyRange seen = keys_of(piece.item, task.shape);
    clear_unseen_scales<typename C::Cache>(
        {seen.first - tile * kTileKeys, seen.end - tile * kTileKeys}, scales(tile));
  }
  /// Both, on their way.
  __device__ void load(int32_t tile) {
    copy(task.keys, tile, stage(tile));
    copy(task.values, tile, stage(tile) + C::kTileBytes);
    if constexpr (C::kCodes) copy_tile_scales(tile);
    copy_async_commit();
  }
  /// One, there for all.
  __device__ void load_now(const typename C::Cache* cache, int32_t tile, bool with_scales) {
    __syncthreads();
    copy(cache, tile, stage(tile));
    if constexpr (C::kCodes) {
      if (with_scales) copy_tile_scales(tile);
    }
    copy_async_commit();
    copy_async_wait<0>();
    if constexpr (C::kCodes) {
      if (with_scales) finish_scales(tile);
    }
    __syncthreads();
  }
};

/// The warp's rows' scores of a tile's keys, which lie in `stage`, in units of log2.
template <class C>
__device__ void score_code_tile(const Task<C>& task, const char* stage, const TileScales& scales,
                                const CodeRows<C>& codes, const WarpState<C>& state,
                                TileScores& scores) {
  const int lane = fresh_lane_id();
  score_codes<typename C::Cache, C::kVectors, typename C::Places, kTileKeys / 16>(
      stage,
      [&](int step, uint32_t (&query)[4]) {
        if constexpr (C::kSharesQueries) {
          const uint4 own = codes.shared[step * kWarp + lane];
          query[0] = own.x;
          query[1] = own.y;
          query[2] = own.z;
          query[3] = own.w;
        } else {
          HEADRACE_UNROLL
          for (int w = 0; w < 4; ++w) query[w] = state.queries[step][w];
        }
      },
      scores);
  scale_scores<2>(scales, codes.queries, task.scale, task.cap, scores);
}

/// soften_tile() of codes.
template <class C>
__device__ void soften_code_tile(const TileScales& scales, TileScores& scores, CodeRows<C>& codes,
                                 WarpState<C>& state) {
  float base[2], keep[2];
  HEADRACE_UNROLL
  for (int i = 0; i < 2; ++i) {
    const float max = max_with(state.max[i], largest_score(scores, i), 1.0f);
    base[i] = base_of(max);
    keep[i] = factor_of(state.max[i], base[i]);
    state.max[i] = max;
  }
  const CodeTotals made = soften_codes<typename C::Cache, 2>(scales, base, scores);
  HEADRACE_UNROLL
  for (int i = 0; i < 2; ++i) {
    state.totals[i] = fmaf(state.totals[i], keep[i], made.total[i]);
    codes.zeros[i] = fmaf(codes.zeros[i], keep[i], made.zero[i]);
  }
  HEADRACE_UNROLL
  for (int n = 0; n < C::kChunks * 4; ++n) state.sums[n / 4][n % 4] *= keep[n % 4 / 2];
}

/// sums += weights . values of a tile of codes.
template <class C>
__device__ void add_code_tile(const TileScores& weights, const char* values, int pass,
                              WarpState<C>& state) {
  constexpr int kOwn = C::kVectors / C::kPasses;
  const int lane = fresh_lane_id();
  HEADRACE_UNROLL
  for (int pair = 0; pair < kTileKeys / 32; ++pair) {
    uint32_t first[4], second[4];
    pack_weights<F16>(weights, 2 * pair, first);
    pack_weights<F16>(weights, 2 * pair + 1, second);
    add_code_values<typename C::Cache, kOwn, typename C::Places>(
        values, 32 * pair + lane, pass * kOwn, kOwn, first, second, state.sums);
  }
}

template <class C>
__device__ void attend_tile(const Task<C>& task, const AttentionPiece& piece, const LaneRows& rows,
                            int32_t tile, int pass, Tiles<C>& tiles, CodeRows<C>& codes,
                            WarpState<C>& state) {
  if constexpr (C::kLarge) {
    tiles.load_now(task.keys, tile, true);
  } else {
    copy_async_wait<0>();
    if constexpr (C::kCodes) tiles.finish_scales(tile);
    __syncthreads();  // behind it nobody reads the stage that the next load fills
    tiles.load(tile + 1);
  }
  const char* const stage = tiles.stage(tile);
  TileScores scores = {};
  if constexpr (C::kCodes) {
    score_code_tile(task, stage, tiles.scales(tile), codes, state, scores);
  } else {
    score_tile(
        stage, state,
        [&](int step, uint32_t (&query)[4]) {
          load_query<C::kHeadDim>(task, piece, rows, step, query);
        },
        scores);
    cap_scores(task.cap, task.scale, scores);
  }
  mask_scores(rows.keys, tile * kTileKeys, scores);
  if constexpr (C::kCodes) {
    soften_code_tile(tiles.scales(tile), scores, codes, state);
  } else {
    soften_tile<C>(weight_scale(task), scores, state);
  }
  if constexpr (C::kLarge) tiles.load_now(task.values, tile, false);
  const char* const values = C::kLarge ? stage : stage + C::kTileBytes;
  if constexpr (C::kCodes) {
    add_code_tile(scores, values, pass, state);
  } else {
    add_values<C>(scores, values, state);
  }
}

/// Queries to registers, or to where the warp's are in shared memory.
template <class C>
__device__ void load_queries(const Task<C>& task, const AttentionPiece& piece, const LaneRows& rows,
                             CodeRows<C>& codes, WarpState<C>& state) {
  if constexpr (C::kCodes) codes.queries.template load<C::kHeadDim>(task, piece, rows);
  if constexpr (C::kSharesQueries) {
    HEADRACE_NO_UNROLL
    for (int step = 0; step < C::kSteps; ++step) {
      uint32_t a[4];
      code_query<C::kHeadDim>(task, piece, rows, codes.queries, step, a);
      codes.shared[step * kWarp + lane_id()] = {a[0], a[1], a[2], a[3]};
    }
    __syncwarp();
  } else if constexpr (!C::kLarge) {
    HEADRACE_UNROLL
    for (int step = 0; step < C::kSteps; ++step) {
      if constexpr (C::kCodes) {
        code_query<C::kHeadDim>(task, piece, rows, codes.queries, step, state.queries[step]);
      } else {
        load_query<C::kHeadDim>(task, piece, rows, step, state.queries[step]);
      }
    }
  }
}

/// All of the piece's keys, and the columns of one pass.
template <class C>
__device__ void attend_pass(const Task<C>& task, const AttentionPiece& piece, const LaneRows& rows,
                            int pass, char* shared, CodeRows<C>& codes, WarpState<C>& state) {
  auto* held = reinterpret_cast<float*>(shared + C::kStages * C::kStageBytes);
  const KeyRange seen = keys_of(piece.item, task.shape);
  Tiles<C> tiles{.task = task,
                 .piece = piece,
                 .memory = shared,
                 .begin = seen.first / kTileKeys,
                 .end = divide_up(seen.end, kTileKeys),
                 .rows = {}};
  for (int i = 0; i < 2; ++i) {
    state.held_max[i] = kNoScore;
    state.held_totals[i] = 0.0f;
  }
  state.start_split();
  bool first = true;
  if constexpr (!C::kLarge) tiles.load(tiles.begin);
  HEADRACE_NO_UNROLL
  for (int32_t tile = tiles.begin; tile < tiles.end; ++tile) {
    attend_tile<C>(task, piece, rows, tile, pass, tiles, codes, state);
    if (tile + 1 < tiles.end && (tile + 1) % (kSplitKeys / kTileKeys) != 0) continue;
    if constexpr (C::kCodes) {
      finish_code_sums<typename C::Cache>(codes.zeros, state.sums);
      codes.zeros[0] = codes.zeros[1] = 0.0f;
    }
    fold_split<C>(held, first, state);
    state.start_split();
    first = false;
  }
  write_results<C>(task, piece, rows, pass, held, state);
}

template <class C>
__device__ void attend(const Task<C>& task, const AttentionPiece& piece, char* shared) {
  const LaneRows rows = lane_rows(task.shape, piece, 16 * warp_id());
  WarpState<C> state;
  CodeRows<C> codes;
  codes.shared = reinterpret_cast<uint4*>(shared + C::kSharedBytes - C::kQueryBytes) +
                 warp_id() * C::kSteps * kWarp;
  load_queries(task, piece, rows, codes, state);
  HEADRACE_NO_UNROLL
  for (int pass = 0; pass < C::kPasses; ++pass) {
    attend_pass(task, piece, rows, pass, shared, codes, state);
  }
}

template <class C>
__global__ void __launch_bounds__(kThreads, C::kBlocks) attention_long_kernel(Task<C> task) {
  char* shared = shared_memory();
  start_next();
  wait_for_previous();
  for_each_piece(task, [&](const AttentionPiece& piece) {
    attend<C>(task, piece, shared);
    __syncthreads();
  });
}

template <class C>
void run(const AttentionArgs& args, Stream stream) {
  launch(
      "attention_long", attention_long_kernel<C>,
      {.grid = {work_grid(args.long_items.expected, args.shape, args.multiprocessors, C::kBlocks)},
       .threads = kThreads,
       .shared_bytes = C::kSharedBytes,
       .overlaps = true},
      stream, attention_task<typename C::T, typename C::Cache>(args, args.long_items));
}

}  // namespace long_pieces
}  // namespace headrace::cuda
