#include "cuda/device/cp_async.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/kernels/attention_kernels.cuh"

namespace headrace::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kKeyTiles = kTileKeys / 8;  // of a score tile, as the tensor core has them
constexpr int kScoreStride = kTileKeys + 4;

/// A block has 4 warps. kRowWarps == 4: each takes 16 rows, and all their keys and columns. 1: all
/// share 16 rows, and divide the keys of a tile for the scores and the columns for the sums. Both
/// give a row the same bits, as neither divides a sum.
template <class T_, int kHeadDim_, int kRowWarps_>
struct Config {
  using T = T_;
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kRowWarps = kRowWarps_;
  static constexpr int kColWarps = kThreads / kWarp / kRowWarps;
  static constexpr int kRows = 16 * kRowWarps;
  static constexpr int kGroups = (kHeadDim + 31) / 32;  // of 32 along a head, for the scores
  static constexpr int kPairs = kHeadDim / 16;          // of column tiles of 8
  static constexpr int kOwnPairs = (kPairs + kColWarps - 1) / kColWarps;
  static constexpr int kOwnKeyTiles = kKeyTiles / kColWarps;
  static constexpr int kChunks = kHeadDim / 8;  // of 16 bytes
  // Rows of keys are 4 chunks off a multiple of 8, so that 16-byte reads of 2 rows x 4 chunks meet
  // every bank once; rows of values an odd number, for reads of 8 rows x 1 chunk.
  static constexpr int kKeyChunks = (kChunks + 3) / 8 * 8 + 4;
  static constexpr int kValueChunks = kChunks + 1;
  static constexpr int kStages = kHeadDim > 128 && kRowWarps > 1 ? 1 : 2;
  static constexpr bool kHoldQueries = kHeadDim <= 128 || kRowWarps == 1;
  static constexpr int kStageBytes = kTileKeys * (kKeyChunks + kValueChunks) * 16;
  static constexpr int kScoreBytes = kColWarps > 1 ? kRows * kScoreStride * 4 : 0;
  static constexpr int kFoldBytes = kRowWarps > 1 ? kRows * kHeadDim * 4 : 0;
  static constexpr int kSharedBytes = kStages * kStageBytes + kScoreBytes + kFoldBytes;
  static_assert(kKeyChunks * 8 >= 32 * kGroups && kKeyChunks >= kChunks);
  static_assert(kSharedBytes <= 163 << 10, "sm_80 has no more");
};

/// Two rows of a lane: g and g + 8 of its warp's 16.
struct LaneRows {
  int32_t m[2];
  bool exists[2];
  KeyRange keys[2];
};

template <class C>
using Task = AttentionTask<typename C::T, typename C::T>;

template <class C>
__device__ LaneRows lane_rows(const Task<C>& task, const AttentionPiece& piece) {
  LaneRows rows;
  const int first = C::kRowWarps > 1 ? 16 * warp_id() : 0;
  for (int i = 0; i < 2; ++i) {
    rows.m[i] = first + lane_place().g + 8 * i;
    rows.exists[i] = piece.exists(task.shape, rows.m[i]);
    const int32_t position = piece.item.position + piece.token(task.shape, rows.m[i]);
    rows.keys[i] = rows.exists[i] ? row_keys(piece.item, task.shape, position) : KeyRange{0, 0};
  }
  return rows;
}

/// A lane's 16 bytes of group `group` of its row i's query.
template <class C>
__device__ uint4 load_query(const Task<C>& task, const AttentionPiece& piece, const LaneRows& rows,
                            int i, int group) {
  const int chunk = 4 * group + lane_place().q;
  if (!rows.exists[i] || chunk >= C::kChunks) return {0, 0, 0, 0};
  const int64_t row = piece.item.row + piece.token(task.shape, rows.m[i]);
  const auto* from = task.q + row * task.q_stride +
                     int64_t{piece.head(task.shape, rows.m[i])} * C::kHeadDim + chunk * 8;
  return *reinterpret_cast<const uint4*>(from);
}

/// Keys and values of a tile into a stage; zeros where the piece sees none.
template <class C>
__device__ void load_tile(const Task<C>& task, const AttentionPiece& piece, KeyRange seen,
                          int32_t tile, char* stage) {
  char* values = stage + kTileKeys * C::kKeyChunks * 16;
  for (int i = static_cast<int>(threadIdx.x); i < kTileKeys * C::kChunks; i += kThreads) {
    const int key = i / C::kChunks, chunk = i % C::kChunks;
    const int32_t position = tile * kTileKeys + key;
    const bool exists = position >= seen.first && position < seen.end;
    const int64_t from = exists ? kv_offset(task, piece, position) + chunk * 8 : 0;
    const int bytes = exists ? 16 : 0;
    copy_async_16(stage + (key * C::kKeyChunks + chunk) * 16, task.keys + from, bytes);
    copy_async_16(values + (key * C::kValueChunks + chunk) * 16, task.values + from, bytes);
  }
}

/// The chunks behind a head whose size isn't a multiple of 32 count as zeros.
template <class C>
__device__ void clear_padding(char* stages) {
  constexpr int kPadding = C::kGroups * 4 - C::kChunks;
  if constexpr (kPadding > 0) {
    for (int i = static_cast<int>(threadIdx.x); i < C::kStages * kTileKeys * kPadding;
         i += kThreads) {
      const int key = i / kPadding % kTileKeys, stage = i / kPadding / kTileKeys;
      const int chunk = C::kChunks + i % kPadding;
      *reinterpret_cast<uint4*>(stages + stage * C::kStageBytes +
                                (key * C::kKeyChunks + chunk) * 16) = {0, 0, 0, 0};
    }
  }
}

template <class C>
struct WarpState {
  uint4 queries[C::kHoldQueries ? C::kGroups : 1][2];
  float sums[C::kOwnPairs * 2][4];
  SoftmaxState rows[2];
};

template <class C>
__device__ void start_split(WarpState<C>& state) {
  HEADRACE_UNROLL
  for (int i = 0; i < C::kOwnPairs * 8; ++i) state.sums[i / 4][i % 4] = 0.0f;
  for (int i = 0; i < 2; ++i) state.rows[i] = {kNoScore, 0.0f};
}

using Scores = float[kKeyTiles][4];

/// Scaled scores of the warp's rows; all keys, with kColWarps > 1 through shared memory.
template <class C>
__device__ void score_tile(const Task<C>& task, const AttentionPiece& piece, const LaneRows& rows,
                           int32_t tile, const char* stage, const WarpState<C>& state,
                           float* exchange, Scores& scores) {
  const auto [g, q] = lane_place();
  const int first = C::kColWarps > 1 ? warp_id() * C::kOwnKeyTiles : 0;
  float own[C::kOwnKeyTiles][4] = {};
  HEADRACE_UNROLL
  for (int group = 0; group < C::kGroups; ++group) {
    uint4 query[2];
    HEADRACE_UNROLL
    for (int i = 0; i < 2; ++i) {
      if constexpr (C::kHoldQueries) {
        query[i] = state.queries[group][i];
      } else {
        query[i] = load_query<C>(task, piece, rows, i, group);
      }
    }
    HEADRACE_UNROLL
    for (int j = 0; j < C::kOwnKeyTiles; ++j) {
      const int key = 8 * (first + j) + g;
      const auto* from = stage + (key * C::kKeyChunks + 4 * group + q) * 16;
      mma_16x8x32<typename C::T>(own[j], query[0], query[1], *reinterpret_cast<const uint4*>(from));
    }
  }
  HEADRACE_UNROLL
  for (int j = 0; j < C::kOwnKeyTiles; ++j) {
    HEADRACE_UNROLL
    for (int c = 0; c < 4; ++c) {
      const int32_t position = tile * kTileKeys + 8 * (first + j) + 2 * q + c % 2;
      const KeyRange& keys = rows.keys[c / 2];
      const bool seen = position >= keys.first && position < keys.end;
      own[j][c] = seen ? own[j][c] * task.scale : kNoScore;
    }
  }
  if constexpr (C::kColWarps == 1) {
    HEADRACE_UNROLL
    for (int i = 0; i < kKeyTiles * 4; ++i) scores[i / 4][i % 4] = own[i / 4][i % 4];
  } else {
    const auto place = [&](int key_tile, int c) -> float& {
      return exchange[(g + c / 2 * 8) * kScoreStride + 8 * key_tile + 2 * q + c % 2];
    };
    HEADRACE_UNROLL
    for (int i = 0; i < C::kOwnKeyTiles * 4; ++i) place(first + i / 4, i % 4) = own[i / 4][i % 4];
    __syncthreads();
    HEADRACE_UNROLL
    for (int i = 0; i < kKeyTiles * 4; ++i) scores[i / 4][i % 4] = place(i / 4, i % 4);
  }
}

/// Scores to weights; the sums so far are scaled to the new maximum.
template <class C>
__device__ void soften(Scores& scores, WarpState<C>& state) {
  HEADRACE_UNROLL
  for (int i = 0; i < 2; ++i) {
    float max = state.rows[i].max;
    HEADRACE_UNROLL
    for (int j = 0; j < kKeyTiles * 2; ++j) {
      const float score = scores[j / 2][2 * i + j % 2];
      max = score > max ? score : max;
    }
    for (int step = 1; step <= 2; step *= 2) {
      const float other = __shfl_xor_sync(kAllLanes, max, step);
      max = other > max ? other : max;
    }
    float total = 0.0f;
    HEADRACE_UNROLL
    for (int j = 0; j < kKeyTiles * 2; ++j) {
      float& score = scores[j / 2][2 * i + j % 2];
      score = weight_of(score, max);
      total += score;
    }
    for (int step = 1; step <= 2; step *= 2) total += __shfl_xor_sync(kAllLanes, total, step);
    const float keep = weight_of(state.rows[i].max, max);
    state.rows[i] = {max, state.rows[i].total * keep + total};
    HEADRACE_UNROLL
    for (int n = 0; n < C::kOwnPairs * 2; ++n) {
      state.sums[n][2 * i] *= keep;
      state.sums[n][2 * i + 1] *= keep;
    }
  }
}

/// First of the columns that pair `p` of the warp's pairs of column tiles is; <0: none.
template <class C>
__device__ int pair_column(int p) {
  const int pair = C::kColWarps > 1 ? p * C::kColWarps + warp_id() : p;
  return pair < C::kPairs ? 16 * pair : -1;
}

/// sums += weights . values.
template <class C>
__device__ void add_values(const Scores& weights, const char* stage, WarpState<C>& state) {
  using T = typename C::T;
  const char* values = stage + kTileKeys * C::kKeyChunks * 16;
  const int matrix = lane_id() / 8, row = lane_id() % 8;
  HEADRACE_UNROLL
  for (int step = 0; step < kTileKeys / 16; ++step) {
    const float (&low)[4] = weights[2 * step];
    const float (&high)[4] = weights[2 * step + 1];
    const uint32_t a[4] = {pack_pair<T>(low[0], low[1]), pack_pair<T>(low[2], low[3]),
                           pack_pair<T>(high[0], high[1]), pack_pair<T>(high[2], high[3])};
    const int key = 16 * step + matrix % 2 * 8 + row;
    HEADRACE_UNROLL
    for (int p = 0; p < C::kOwnPairs; ++p) {
      const int column = pair_column<C>(p);
      if (column < 0) continue;
      uint32_t b[4];
      load_transposed(b, values + (key * C::kValueChunks + column / 8 + matrix / 2) * 16);
      const uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
      mma_16x8x16<T>(state.sums[2 * p], a, first);
      mma_16x8x16<T>(state.sums[2 * p + 1], a, second);
    }
  }
}

/// Adds a finished split to what shared memory holds of the splits before (element i of the sums of
/// every thread side by side) and keeps the result there or, at the last split, in `state`.
template <class C>
__device__ void fold_split(float* held, bool last, SoftmaxState (&total)[2], WarpState<C>& state) {
  const Fold folds[2] = {fold_splits(total[0], state.rows[0]),
                         fold_splits(total[1], state.rows[1])};
  HEADRACE_UNROLL
  for (int i = 0; i < C::kOwnPairs * 8; ++i) {
    float& sum = state.sums[i / 4][i % 4];
    float& kept = held[i * kThreads + static_cast<int>(threadIdx.x)];
    sum = fold_sums(folds[i % 4 / 2], kept, sum);
    if (!last) kept = sum;
  }
  for (int i = 0; i < 2; ++i) total[i] = state.rows[i] = folds[i].state;
}

template <class C>
__device__ void write_results(const Task<C>& task, const AttentionPiece& piece,
                              const LaneRows& rows, const WarpState<C>& state) {
  const int q = lane_place().q;
  const int32_t d = C::kHeadDim;
  HEADRACE_UNROLL
  for (int i = 0; i < 2; ++i) {
    if (!rows.exists[i]) continue;
    const int32_t m = rows.m[i];
    float* partial = nullptr;
    if (piece.item.partial >= 0) {
      partial = task.partials +
                partial_offset(task.shape, piece.item.partial, piece.kv_head, piece.part) +
                m * partial_stride(d);
      if (q == 0 && (C::kColWarps == 1 || warp_id() == 0)) {
        partial[d] = state.rows[i].max;
        partial[d + 1] = state.rows[i].total;
      }
    }
    auto* out = task.out + (piece.item.row + piece.token(task.shape, m)) * task.out_stride +
                int64_t{piece.head(task.shape, m)} * d;
    HEADRACE_UNROLL
    for (int n = 0; n < C::kOwnPairs * 2; ++n) {
      const int base = pair_column<C>(n / 2);
      if (base < 0) continue;
      const int column = base + n % 2 * 8 + 2 * q;
      const float first = state.sums[n][2 * i], second = state.sums[n][2 * i + 1];
      if (partial != nullptr) {
        *reinterpret_cast<float2*>(partial + column) = {first, second};
      } else {
        const float total = state.rows[i].total;
        *reinterpret_cast<uint32_t*>(out + column) =
            pack_pair<typename C::T>(first / total, second / total);
      }
    }
  }
}

template <class C>
__device__ void attend(const Task<C>& task, const AttentionPiece& piece, char* shared) {
  auto* exchange = reinterpret_cast<float*>(shared + C::kStages * C::kStageBytes);
  auto* held = reinterpret_cast<float*>(shared + C::kStages * C::kStageBytes + C::kScoreBytes);
  const LaneRows rows = lane_rows<C>(task, piece);
  WarpState<C> state;
  if constexpr (C::kHoldQueries) {
    HEADRACE_UNROLL
    for (int i = 0; i < C::kGroups * 2; ++i) {
      state.queries[i / 2][i % 2] = load_query<C>(task, piece, rows, i % 2, i / 2);
    }
  }
  start_split(state);
  const KeyRange seen = keys_of(piece.item, task.shape);
  constexpr int32_t kTilesPerSplit = kSplitKeys / kTileKeys;
  const int32_t begin = greatest(seen.first / kTileKeys, piece.item.first_split * kTilesPerSplit);
  const int32_t end =
      least((seen.end + kTileKeys - 1) / kTileKeys, piece.item.end_split * kTilesPerSplit);
  SoftmaxState total[2] = {{kNoScore, 0.0f}, {kNoScore, 0.0f}};

  const auto load = [&](int32_t tile) {
    if (tile < end) {
      load_tile<C>(task, piece, seen, tile, shared + (tile - begin) % C::kStages * C::kStageBytes);
    }
    copy_async_commit();
  };
  if constexpr (C::kStages > 1) load(begin);
  HEADRACE_NO_UNROLL
  for (int32_t tile = begin; tile < end; ++tile) {
    // Behind this barrier nobody reads the stage that the next load fills.
    if constexpr (C::kStages > 1) {
      copy_async_wait<0>();
      __syncthreads();
      load(tile + 1);
    } else {
      __syncthreads();
      load(tile);
      copy_async_wait<0>();
      __syncthreads();
    }
    const char* stage = shared + (tile - begin) % C::kStages * C::kStageBytes;
    Scores scores;
    score_tile<C>(task, piece, rows, tile, stage, state, exchange, scores);
    soften<C>(scores, state);
    add_values<C>(scores, stage, state);
    const bool last = tile + 1 == end;
    if constexpr (C::kFoldBytes > 0) {
      if (!last && (tile + 1) % kTilesPerSplit != 0) continue;
      fold_split<C>(held, last, total, state);
      if (!last) start_split(state);
    }
  }
  write_results<C>(task, piece, rows, state);
}

template <class C>
__global__ void __launch_bounds__(kThreads, 2) attention_kernel(Task<C> task) {
  char* shared = shared_memory();
  clear_padding<C>(shared);
  const int64_t count = piece_count(task);
  HEADRACE_NO_UNROLL
  for (int64_t p = blockIdx.x; p < count; p += gridDim.x) {
    attend<C>(task, piece_at(task, p), shared);
    __syncthreads();
  }
}

template <class C>
void run(const AttentionArgs& args, const WorkList<AttentionItem>& list, Stream stream) {
  using T = typename C::T;
  if (list.expected <= 0) return;
  constexpr int kHopperSharedBytes = 227 << 10;
  const LaunchShape shape{.grid = {work_grid(list.expected, args.shape, args.multiprocessors,
                                             greatest(kHopperSharedBytes / C::kSharedBytes, 1))},
                          .threads = kThreads,
                          .shared_bytes = C::kSharedBytes};
  launch(C::kRowWarps > 1 ? "attention_long" : "attention_short", attention_kernel<C>, shape,
         stream, attention_task<T, T>(args, list));
}

template <class F>
void with_head_dim(int32_t head_dim, F&& f) {
  switch (head_dim) {
    case 64:
      return f(Int<64>{});
    case 80:
      return f(Int<80>{});
    case 96:
      return f(Int<96>{});
    case 128:
      return f(Int<128>{});
    case 256:
      return f(Int<256>{});
    default:
      HEADRACE_CHECK(false, head_dim);
  }
}

}  // namespace

bool can_use_mma(const AttentionArgs& args) {
  const int32_t d = args.shape.head_dim;
  const auto aligned = [](const void* data, int64_t stride) {
    return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
  };
  return (args.dtype == DType::kBF16 || args.dtype == DType::kF16) &&
         args.dtype == args.cache_dtype &&
         (d == 64 || d == 80 || d == 96 || d == 128 || d == 256) &&
         aligned(args.q.data, args.q.stride) && aligned(args.out.data, args.out.stride) &&
         aligned(args.keys, 0) && aligned(args.values, 0);
}

void attention_mma(const AttentionArgs& args, Stream stream) {
  with_half(args.dtype, [&](auto element) {
    with_head_dim(args.shape.head_dim, [&](auto head_dim) {
      using T = decltype(element);
      constexpr int kHeadDim = decltype(head_dim)::value;
      run<Config<T, kHeadDim, 1>>(args, args.short_items, stream);
      if (args.shape.long_rows == kLongRows) {
        run<Config<T, kHeadDim, 4>>(args, args.long_items, stream);
      }
    });
  });
}

}  // namespace headrace::cuda
