#include "cuda/kernels/attention_merge.cuh"
#include "cuda/kernels/attention_rows.cuh"

// Short pieces, of up to 16 rows: a block takes one split after another and has the next ones' keys
// and values on their way meanwhile. Its 4 warps score a tile of the split each, and then sum a
// part of the columns each over all of its keys; a warp's keys and columns reach it through stages
// of its own, so that warps meet only twice a split, for the tiles' maxima and for their weights.

namespace headrace::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kTiles = kSplitKeys / kTileKeys;
constexpr int kSplitSteps = kSplitKeys / 16;  // products over a split's keys
constexpr int kTileSteps = kTileKeys / 16;
static_assert(kTiles == kWarps && kShortRows == 16);

/// What a block's warps tell one another.
struct Exchange {
  uint4 weights[kSplitSteps][kWarp];  // as products take them
  float totals[kTiles][kShortRows][4];
  float max[kTiles][kShortRows];  // of scores, unscaled
  uint32_t is_last;
  uint32_t unused[3];
};

/// Queries that registers have no room for, as products take them.
template <int kSteps>
using SharedQueries = uint4[kSteps][kWarp];

template <class T_, int kHeadDim_>
struct Config {
  using T = T_;
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kSteps = kHeadDim / 16;
  static constexpr int kChunks = kHeadDim / 8;  // of 16 bytes
  static constexpr int kOwnChunks = divide_up(kChunks, kWarps);
  static constexpr bool kAllOwn = kOwnChunks * kWarps == kChunks;
  static constexpr bool kSharesQueries = kHeadDim > 128;
  static constexpr int kQueryBytes = kSharesQueries ? sizeof(SharedQueries<kSteps>) : 0;
  // A stage takes 4 KiB or so: rows of a tile's keys, or of a split's values in the warp's columns.
  static constexpr int kKeyRows = kHeadDim > 128 ? 8 : 16;
  static constexpr int kValueRows = 4 * kKeyRows;
  static constexpr int kKeyPieces = kTileKeys / kKeyRows;
  static constexpr int kValuePieces = kSplitKeys / kValueRows;
  static constexpr int kPieces = kKeyPieces + kValuePieces;
  using KeyPlaces = RowPlaces<kChunks>;
  using ValuePlaces = RowPlaces<kOwnChunks>;
  static constexpr int kStageBytes =
      greatest(kKeyRows * KeyPlaces::kStride, kValueRows* ValuePlaces::kStride) * 16;
  // On a card of sm_86 or sm_89 a block has 99 KiB.
  static constexpr int kStages = least(8, (80 << 10) / (kWarps * kStageBytes));
  static constexpr int kSharedBytes =
      static_cast<int>(sizeof(Exchange)) + kQueryBytes + kWarps * kStages * kStageBytes;
  static constexpr int kBlocks = (227 << 10) / (kSharedBytes + 1024);  // of sm_90
  static_assert(kStages >= 2 && kStages <= kPieces && kSharedBytes <= 99 << 10);
};

template <class C>
using Task = AttentionTask<typename C::T, typename C::T>;

/// Split number `n` of the list's: those of a sequence's head follow one another.
template <class C>
__device__ AttentionPiece split_at(const Task<C>& task, uint32_t n) {
  const auto items = static_cast<uint32_t>(*task.count);
  const auto unit = static_cast<int32_t>(n / items);
  return {task.items[n % items], unit / task.shape.parts(), unit % task.shape.parts()};
}

/// A warp's stages: pieces of splits [next, end), each split's in order, ahead of their use.
template <class C>
struct Pipeline {
  const Task<C>& task;
  char* memory;
  uint32_t next, end;
  SplitRows rows, rows_ahead;
  int filled = 0, used = 0;

  __device__ Pipeline(const Task<C>& of, char* stages, uint32_t first, uint32_t behind)
      : task(of), memory(stages), next(first), end(behind), rows{}, rows_ahead{} {
    resolve();
    HEADRACE_UNROLL
    for (int piece = 0; piece < C::kStages - 1; ++piece) load(piece);
  }

  /// Finds the rows of the split that will be loaded behind the present one.
  __device__ void resolve() {
    rows_ahead = {};
    if (next < end) {
      const AttentionPiece piece = split_at<C>(task, next);
      rows_ahead = split_rows(task, piece, piece.item.first_split);
    }
    ++next;
  }

  __device__ void load(int piece) {
    if (piece == 0) {
      rows = rows_ahead;
      resolve();
    }
    char* const to = memory + filled * C::kStageBytes;
    filled = filled + 1 == C::kStages ? 0 : filled + 1;
    if (piece < C::kKeyPieces) {
      copy_rows<C::kKeyRows, C::kChunks, C::kChunks>(
          task.keys, rows, warp_id() * kTileKeys + piece * C::kKeyRows, 0, to);
    } else {
      copy_rows<C::kValueRows, C::kOwnChunks, C::kChunks>(task.values, rows,
                                                          (piece - C::kKeyPieces) * C::kValueRows,
                                                          warp_id() * C::kOwnChunks, to);
    }
    copy_async_commit();
  }

  /// The next piece, number `piece` of its split; the one before isn't used any more.
  __device__ const char* take(int piece) {
    copy_async_wait<C::kStages - 2>();
    __syncwarp();
    load((piece + C::kStages - 1) % C::kPieces);
    const char* const stage = memory + used * C::kStageBytes;
    used = used + 1 == C::kStages ? 0 : used + 1;
    return stage;
  }
};

/// The rows that a block works on, and their queries.
template <class C>
struct Queries {
  SharedQueries<C::kSteps>& shared;
  uint32_t own[C::kSharesQueries ? 1 : C::kSteps][4];
  LaneRows rows{};
  int32_t row = -1, kv_head = -1, part = -1;

  __device__ explicit Queries(char* memory)
      : shared(*reinterpret_cast<SharedQueries<C::kSteps>*>(memory)) {}

  /// By the whole block, all of which has met since it last used them.
  __device__ void load(const Task<C>& task, const AttentionPiece& piece) {
    if (row == piece.item.row && kv_head == piece.kv_head && part == piece.part) return;
    row = piece.item.row;
    kv_head = piece.kv_head;
    part = piece.part;
    rows = lane_rows(task.shape, piece, 0);
    if constexpr (C::kSharesQueries) {
      for (int step = warp_id(); step < C::kSteps; step += kWarps) {
        uint32_t a[4];
        load_query<C::kHeadDim>(task, piece, rows, step, a);
        shared[step][lane_id()] = {a[0], a[1], a[2], a[3]};
      }
      __syncthreads();
    } else {
      HEADRACE_UNROLL
      for (int step = 0; step < C::kSteps; ++step) {
        load_query<C::kHeadDim>(task, piece, rows, step, own[step]);
      }
    }
  }
  __device__ void get(int step, int lane, uint32_t (&a)[4]) const {
    if constexpr (C::kSharesQueries) {
      const uint4 query = shared[step][lane];
      a[0] = query.x;
      a[1] = query.y;
      a[2] = query.z;
      a[3] = query.w;
    } else {
      HEADRACE_UNROLL
      for (int i = 0; i < 4; ++i) a[i] = own[step][i];
    }
  }
};

/// Products of a piece of keys, number `piece` of the warp's tile.
template <class C>
__device__ void add_scores(const Queries<C>& queries, const char* stage, int piece,
                           TileScores& scores) {
  using T = typename C::T;
  const int lane = fresh_lane_id(), matrix = lane / 8, row = lane % 8;
  if constexpr (C::kKeyRows == 16) {
    HEADRACE_UNROLL
    for (int step = 0; step < C::kSteps; ++step) {
      uint32_t b[4];
      load_matrices(b, stage + C::KeyPlaces::at(row + matrix / 2 * 8, 2 * step + matrix % 2));
      uint32_t a[4];
      queries.get(step, lane, a);
      const uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
      mma_16x8x16<T>(scores[2 * piece], a, low);
      mma_16x8x16<T>(scores[2 * piece + 1], a, high);
    }
  } else {
    HEADRACE_UNROLL
    for (int step = 0; step < C::kSteps; step += 2) {
      uint32_t b[4];
      load_matrices(b, stage + C::KeyPlaces::at(row, 2 * step + matrix));
      uint32_t a[2][4];
      queries.get(step, lane, a[0]);
      queries.get(step + 1, lane, a[1]);
      const uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
      mma_16x8x16<T>(scores[piece], a[0], first);
      mma_16x8x16<T>(scores[piece], a[1], second);
    }
  }
}

/// What becomes of a lane's two rows in a split.
template <class C>
struct SplitState {
  KeyRange seen;          // by some row, from the split's first key on
  float keep[kTiles][2];  // factors for the sums ahead of a tile
  float max[2], totals[2];
  float sums[C::kOwnChunks][4];

  __device__ bool sees(int tile) const {
    return tile * kTileKeys < seen.end && (tile + 1) * kTileKeys > seen.first;
  }
};

/// Between the barriers: what the tiles' maxima say, and the warp's weights.
template <class C>
__device__ void share_weights(const Task<C>& task, TileScores& scores, SplitState<C>& split,
                              Exchange& exchange) {
  const auto [g, q] = lane_place();
  float totals[2];
  HEADRACE_UNROLL
  for (int i = 0; i < 2; ++i) {
    float max = kNoScore, own_base = 0.0f;
    HEADRACE_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      if (!split.sees(tile)) continue;
      const float next = max_with(max, exchange.max[tile][g + 8 * i], task.scale);
      const float base = base_of(next);
      split.keep[tile][i] = factor_of(max, base);
      if (tile == warp_id()) own_base = base;
      max = next;
    }
    split.max[i] = max;
    totals[i] = soften(scores, i, task.scale, own_base);
  }
  if (!split.sees(warp_id())) return;
  for (int i = 0; i < 2; ++i) exchange.totals[warp_id()][g + 8 * i][q] = totals[i];
  HEADRACE_UNROLL
  for (int step = 0; step < kTileSteps; ++step) {
    uint32_t a[4];
    pack_weights<typename C::T>(scores, step, a);
    exchange.weights[warp_id() * kTileSteps + step][lane_id()] = {a[0], a[1], a[2], a[3]};
  }
}

/// sums += weights . values, of a piece that starts at the split's key `key`.
template <class C>
__device__ void add_values(const char* stage, int key, const Exchange& exchange,
                           SplitState<C>& split) {
  using T = typename C::T;
  const int lane = fresh_lane_id();
  HEADRACE_UNROLL
  for (int pair = 0; pair < C::kValueRows / 32; ++pair) {
    const uint4 w0 = exchange.weights[key / 16 + 2 * pair][lane];
    const uint4 w1 = exchange.weights[key / 16 + 2 * pair + 1][lane];
    const uint32_t first_a[4] = {w0.x, w0.y, w0.z, w0.w}, second_a[4] = {w1.x, w1.y, w1.z, w1.w};
    HEADRACE_UNROLL
    for (int c = 0; c < C::kOwnChunks; ++c) {
      if (!C::kAllOwn && warp_id() * C::kOwnChunks + c >= C::kChunks) continue;
      uint32_t b[4];
      load_transposed(b, stage + C::ValuePlaces::at(32 * pair + lane, c));
      const uint32_t first_b[2] = {b[0], b[1]}, second_b[2] = {b[2], b[3]};
      mma_16x8x16<T>(split.sums[c], first_a, first_b);
      mma_16x8x16<T>(split.sums[c], second_a, second_b);
    }
  }
}

template <class C>
__device__ void sum_values(Pipeline<C>& pipeline, const Exchange& exchange, SplitState<C>& split) {
  const auto [g, q] = lane_place();
  HEADRACE_UNROLL
  for (int i = 0; i < C::kOwnChunks * 4; ++i) split.sums[i / 4][i % 4] = 0.0f;
  for (int i = 0; i < 2; ++i) split.totals[i] = 0.0f;
  HEADRACE_UNROLL
  for (int tile = 0; tile < kTiles; ++tile) {
    if (split.sees(tile)) {
      HEADRACE_UNROLL
      for (int i = 0; i < C::kOwnChunks * 4; ++i) {
        split.sums[i / 4][i % 4] *= split.keep[tile][i % 4 / 2];
      }
      for (int i = 0; i < 2; ++i) {
        split.totals[i] =
            fmaf(split.totals[i], split.keep[tile][i], exchange.totals[tile][g + 8 * i][q]);
      }
    }
    constexpr int kTilePieces = kTileKeys / C::kValueRows;
    HEADRACE_NO_UNROLL
    for (int piece = tile * kTilePieces; piece < (tile + 1) * kTilePieces; ++piece) {
      const char* const stage = pipeline.take(C::kKeyPieces + piece);
      const int key = piece * C::kValueRows;
      const bool sees = key < split.seen.end && key + C::kValueRows > split.seen.first;
      if (sees) add_values(stage, key, exchange, split);
    }
  }
}

template <class C>
__device__ void write_split(const Task<C>& task, const AttentionPiece& piece, const LaneRows& rows,
                            const SplitState<C>& split) {
  const int q = lane_place().q;
  HEADRACE_UNROLL
  for (int i = 0; i < 2; ++i) {
    float total = split.totals[i];
    total += __shfl_xor_sync(kAllLanes, total, 1);
    total += __shfl_xor_sync(kAllLanes, total, 2);
    if (!rows.exists[i]) continue;
    const bool is_partial = piece.item.partial >= 0;
    float* const partial =
        is_partial ? partial_of(task, piece) + rows.m[i] * partial_stride(C::kHeadDim) : nullptr;
    auto* const out = task.out +
                      (piece.item.row + piece.token(task.shape, rows.m[i])) * task.out_stride +
                      int64_t{piece.head(task.shape, rows.m[i])} * C::kHeadDim;
    if (is_partial && warp_id() == 0) {
      if (q == 0) partial[C::kHeadDim] = split.max[i];
      partial[C::kHeadDim + 4 + q] = split.totals[i];
    }
    const float factor = 1.0f / total;
    HEADRACE_UNROLL
    for (int c = 0; c < C::kOwnChunks; ++c) {
      const int chunk = warp_id() * C::kOwnChunks + c;
      if (!C::kAllOwn && chunk >= C::kChunks) continue;
      const int column = chunk * 8 + 2 * q;
      const float first = split.sums[c][2 * i], second = split.sums[c][2 * i + 1];
      if (is_partial) {
        *reinterpret_cast<float2*>(partial + column) = {first, second};
      } else {
        *reinterpret_cast<uint32_t*>(out + column) =
            pack_pair<typename C::T>(first * factor, second * factor);
      }
    }
  }
}

template <class C>
__device__ void attend(const Task<C>& task, const AttentionPiece& piece, Pipeline<C>& pipeline,
                       Queries<C>& queries, Exchange& exchange) {
  const int32_t base = piece.item.first_split * kSplitKeys;
  const KeyRange seen = keys_of(piece.item, task.shape);
  SplitState<C> split;
  split.seen = {greatest(seen.first - base, 0), least(seen.end - base, kSplitKeys)};
  queries.load(task, piece);
  TileScores scores = {};
  const bool sees = split.sees(warp_id());
  HEADRACE_UNROLL
  for (int i = 0; i < C::kKeyPieces; ++i) {
    const char* const stage = pipeline.take(i);
    if (sees) add_scores(queries, stage, i, scores);
  }
  mask_scores(queries.rows, base + warp_id() * kTileKeys, scores);
  HEADRACE_UNROLL
  for (int i = 0; i < 2; ++i) {
    const float max = largest_score(scores, i);
    if (lane_place().q == 0) exchange.max[warp_id()][lane_place().g + 8 * i] = max;
  }
  __syncthreads();
  share_weights(task, scores, split, exchange);
  __syncthreads();
  sum_values(pipeline, exchange, split);
  write_split(task, piece, queries.rows, split);
}

/// A block takes neighbouring splits of the list.
template <class C>
__global__ void __launch_bounds__(kThreads, C::kBlocks) attention_short_kernel(Task<C> task) {
  char* const memory = shared_memory();
  auto& exchange = *reinterpret_cast<Exchange*>(memory);
  char* const queries_at = memory + sizeof(Exchange);
  char* const stages = queries_at + C::kQueryBytes;
  start_next();
  wait_for_previous();
  const uint32_t count = static_cast<uint32_t>(*task.count) *
                         static_cast<uint32_t>(task.shape.num_kv_heads * task.shape.parts());
  const auto share = [&](uint32_t block) {
    return static_cast<uint32_t>(uint64_t{count} * block / gridDim.x);
  };
  const uint32_t end = share(blockIdx.x + 1);
  uint32_t n = share(blockIdx.x);
  if (n >= end) return;
  Pipeline<C> pipeline(task, stages + warp_id() * C::kStages * C::kStageBytes, n, end);
  Queries<C> queries(queries_at);
  int32_t made = 0;  // of a sequence's head, since blocks last told one another
  HEADRACE_NO_UNROLL
  for (; n < end; ++n) {
    const AttentionPiece piece = split_at<C>(task, n);
    attend<C>(task, piece, pipeline, queries, exchange);
    if (piece.item.partial < 0) continue;
    ++made;
    const bool is_end = piece.item.first_split + 1 == splits_of(piece, task.shape).end();
    if (!is_end && n + 1 < end) continue;
    merge_if_last(task, piece, made, &exchange.is_last);
    made = 0;
  }
  copy_async_wait<0>();
}

template <class C>
void run(const AttentionArgs& args, Stream stream) {
  using T = typename C::T;
  const int64_t splits =
      int64_t{args.short_items.expected} * args.shape.num_kv_heads * args.shape.parts();
  HEADRACE_CHECK(splits <= 0x7fffffff, splits);
  launch(
      "attention_short", attention_short_kernel<C>,
      {.grid = {work_grid(args.short_items.expected, args.shape, args.multiprocessors, C::kBlocks)},
       .threads = kThreads,
       .shared_bytes = C::kSharedBytes,
       .overlaps = true},
      stream, attention_task<T, T>(args, args.short_items));
}

}  // namespace

void attention_mma_short(const AttentionArgs& args, Stream stream) {
  if (args.short_items.expected <= 0) return;
  with_half(args.dtype, [&](auto element) {
    with_mma_head_dim(args.shape.head_dim, [&](auto head_dim) {
      run<Config<decltype(element), decltype(head_dim)::value>>(args, stream);
    });
  });
}

}  // namespace headrace::cuda
