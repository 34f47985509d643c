#include "cuda/kernels/attention/attention_merge.cuh"
#include "cuda/kernels/attention/attention_warp.cuh"

// Attention over latent rows by tensor cores. A token's row is key and value of all query heads, so
// a piece's rows are up to 16 heads of one token, or those of several. Each of a block's 4 warps
// has a quarter of the columns: it copies them, multiplies them as keys and, once all warps' parts
// of the scores have met in shared memory, as values. So a row is read once for both. The warps
// compute the same softmax.
//
// A score is the sum of the four quarters' chains, (0 + 1) + (2 + 3). Tiles have kTile keys; the
// rest is as attention_fold.cuh says.

namespace headrace::cuda {
namespace latent_pieces {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kTile = 32;  // keys
constexpr int kSplitTiles = kSplitKeys / kTile;
constexpr int kStages = 2;

/// Of rows of up to 64 * kSteps columns; those behind the last are zeros. kHolds: of long pieces,
/// which have several splits.
template <class T_, int kSteps_, bool kHolds_>
struct Config {
  using T = T_;
  static constexpr int kSteps = kSteps_;
  static constexpr int kChunks = 2 * kSteps;
  static constexpr bool kHolds = kHolds_;
  static constexpr bool kLarge = false;
  using Places = RowPlaces<kChunks>;
  static constexpr int kStageBytes = kTile * Places::kStride * 16;  // of a warp
  static constexpr int kSharedBytes = kWarps * kStages * kStageBytes;
  static constexpr int kBlocks = 2;  // of sm_90
};

template <class C>
using Task = AttentionTask<typename C::T, typename C::T>;

/// The warps' parts of a tile's scores, each lane's side by side.
using Parts = float4[kWarps][kTile / 8][kWarp];

/// The tiles of a block's pieces, one after the other. The list is read again where a piece is
/// asked for: registers are few.
template <class C>
class Walk {
 public:
  __device__ explicit Walk(const Task<C>& task) : task_(task) { enter(); }
  __device__ bool is_over() const { return end_ == 0; }
  __device__ AttentionPiece piece() const {
    const auto units = static_cast<uint32_t>(task_.shape.parts());
    const PieceAt at = piece_at(task_.items, piece_of_round(round_, blockIdx.x, gridDim.x), units);
    return {task_.items[at.item], 0, static_cast<int32_t>(at.unit)};
  }
  __device__ int32_t tile() const { return tile_; }
  __device__ bool starts_piece() const { return tile_ == begin_; }
  __device__ bool starts_split() const { return starts_piece() || tile_ % kSplitTiles == 0; }
  __device__ bool ends_piece() const { return tile_ + 1 == end_; }
  __device__ bool ends_split() const { return ends_piece() || (tile_ + 1) % kSplitTiles == 0; }
  __device__ void next() {
    if (++tile_ < end_) return;
    ++round_;
    enter();
  }

 private:
  /// The block's piece of the next round.
  __device__ void enter() {
    const uint32_t count =
        static_cast<uint32_t>(*task_.count) * static_cast<uint32_t>(task_.shape.parts());
    end_ = 0;
    // There is none in a later round either.
    if (piece_of_round(round_, blockIdx.x, gridDim.x) >= count) return;
    const AttentionItem item = piece().item;
    const KeyRange seen = keys_of(item, task_.shape);
    begin_ = tile_ = greatest(seen.first / kTile, item.first_split * kSplitTiles);
    end_ = least(divide_up(seen.end, kTile), item.end_split * kSplitTiles);
  }

  const Task<C>& task_;
  uint32_t round_ = 0;
  int32_t tile_ = 0, begin_ = 0, end_ = 0;
};

/// A warp's columns of tiles on their way, the next one's while one is used.
template <class C>
class Stages {
 public:
  __device__ explicit Stages(const Task<C>& task) : task_(task), walk_(task) { load(); }

  /// The next tile; the one before isn't used any more.
  __device__ const char* take() {
    copy_async_wait<0>();
    __syncwarp();
    const char* const stage = stage_at(filled_ ^ 1);
    load();
    return stage;
  }

 private:
  __device__ static char* stage_at(int number) {
    return shared_memory() + (warp_id() * kStages + number) * C::kStageBytes;
  }
  __device__ void load() {
    char* const to = stage_at(filled_);
    filled_ ^= 1;
    if (walk_.is_over()) return;
    if (walk_.starts_split()) rows_ = split_rows(task_, walk_.piece(), walk_.tile() / kSplitTiles);
    copy(walk_.tile() % kSplitTiles * kTile, to);
    copy_async_commit();
    walk_.next();
  }

  /// Keys [key, key + kTile) of the split; zeros where the piece sees none. Lanes have a vector of
  /// 8 rows each, four side by side.
  __device__ void copy(int key, char* to) const {
    const int columns = task_.layout.head_dim / 8, first = warp_id() * C::kChunks;
    const int lane = fresh_lane_id(), own = lane % 4;
    HEADRACE_UNROLL
    for (int group = 0; group < kTile / kResolvedKeys; ++group) {
      const int row = group * kResolvedKeys + lane / 4, at = key + row;
      const uint32_t from = __shfl_sync(kAllLanes, rows_.row, at / kResolvedKeys) +
                            static_cast<uint32_t>(at % kResolvedKeys);
      const auto* const start =
          reinterpret_cast<const char*>(task_.keys) + int64_t{from} * columns * 16;
      const bool seen = at >= rows_.seen.first && at < rows_.seen.end;
      HEADRACE_UNROLL
      for (int i = 0; i < divide_up(C::kChunks, 4); ++i) {
        const int column = 4 * i + own;
        if (C::kChunks % 4 != 0 && column >= C::kChunks) continue;
        const bool exists = seen && first + column < columns;
        copy_async_16(to + C::Places::at(row, column), start + (exists ? first + column : 0) * 16,
                      exists ? 16 : 0);
      }
    }
  }

  const Task<C>& task_;
  Walk<C> walk_;
  SplitRows rows_{};
  int filled_ = 0;
};

/// Where the head of the piece's row m begins in the queries, or in the output.
template <class Pointer, class T>
__device__ Pointer head_at(Pointer data, int64_t stride, const AttentionTask<T, T>& task,
                           const AttentionPiece& piece, int32_t m) {
  return data + (piece.item.row + piece.token(task.shape, m)) * stride +
         int64_t{piece.head(task.shape, m)} * task.layout.head_dim;
}

/// A lane's two rows, and its warp's columns of them.
template <class C>
struct State : WarpState<C> {
  KeyRange keys[2];
  float held[C::kHolds ? C::kChunks : 1][4];  // sums of the splits before

  __device__ void start_piece(const Task<C>& task, const AttentionPiece& piece) {
    const LaneRows rows = lane_rows(task.shape, piece, 0);
    for (int i = 0; i < 2; ++i) {
      keys[i] = rows.keys[i];
      this->held_max[i] = kNoScore;
      this->held_totals[i] = 0.0f;
    }
    HEADRACE_UNROLL
    for (int step = 0; step < C::kSteps; ++step) load_queries(task, piece, rows, step);
    if constexpr (C::kHolds) {
      HEADRACE_UNROLL
      for (int i = 0; i < C::kChunks * 4; ++i) held[i / 4][i % 4] = 0.0f;
    }
  }
  __device__ void load_queries(const Task<C>& task, const AttentionPiece& piece,
                               const LaneRows& rows, int step) {
    const int column = (warp_id() * C::kSteps + step) * 16;
    HEADRACE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const bool exists = rows.exists[i] && column < task.layout.head_dim;
      const auto* const from =
          head_at(task.q, task.q_stride, task, piece, rows.m[i]) + column + 2 * lane_place().q;
      this->queries[step][i] = exists ? *reinterpret_cast<const uint32_t*>(from) : 0;
      this->queries[step][i + 2] = exists ? *reinterpret_cast<const uint32_t*>(from + 8) : 0;
    }
  }

  __device__ void fold_split() {
    HEADRACE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const Fold fold(this->held_max[i], this->max[i]);
      this->held_max[i] = fold.max;
      this->held_totals[i] = fold(this->held_totals[i], this->totals[i]);
      HEADRACE_UNROLL
      for (int n = 0; n < C::kChunks * 2; ++n) {
        float& kept = held[n / 2][2 * i + n % 2];
        kept = fold(kept, this->sums[n / 2][2 * i + n % 2]);
      }
    }
  }
};

/// Calls f(chunk, column) for the lane's two columns of each chunk that the warp has.
template <class C, class F>
__device__ void for_each_pair(const Task<C>& task, const F& f) {
  HEADRACE_UNROLL
  for (int n = 0; n < C::kChunks; ++n) {
    const int column = (warp_id() * C::kChunks + n) * 8 + 2 * lane_place().q;
    if (column < task.layout.head_dim) f(n, column);
  }
}

/// The piece's only split, for the block that folds them.
template <class C>
__device__ void write_partial(const Task<C>& task, const AttentionPiece& piece,
                              const State<C>& state) {
  const int32_t d = task.layout.head_dim;
  const LaneRows rows = lane_rows(task.shape, piece, 0);
  HEADRACE_UNROLL
  for (int i = 0; i < 2; ++i) {
    if (!rows.exists[i]) continue;
    float* const to = partial_of(task, piece) + rows.m[i] * partial_stride(d);
    if (warp_id() == 0) {
      if (lane_place().q == 0) to[d] = state.max[i];
      to[d + 4 + lane_place().q] = state.totals[i];
    }
    for_each_pair<C>(task, [&](int n, int column) {
      *reinterpret_cast<float2*>(to + column) = {state.sums[n][2 * i], state.sums[n][2 * i + 1]};
    });
  }
}

/// Of all splits.
template <class C>
__device__ void write_results(const Task<C>& task, const AttentionPiece& piece,
                              const float (&sums)[C::kChunks][4], const float (&totals)[2],
                              const float (&max)[2]) {
  const LaneRows rows = lane_rows(task.shape, piece, 0);
  HEADRACE_UNROLL
  for (int i = 0; i < 2; ++i) {
    float total = totals[i];
    total += __shfl_xor_sync(kAllLanes, total, 1);
    total += __shfl_xor_sync(kAllLanes, total, 2);
    if (!rows.exists[i]) continue;
    const float factor = output_factor(task, piece, rows.m[i], total, max[i]);
    auto* const to = head_at(task.out, task.out_stride, task, piece, rows.m[i]);
    for_each_pair<C>(task, [&](int n, int column) {
      *reinterpret_cast<uint32_t*>(to + column) =
          pack_pair<typename C::T>(sums[n][2 * i] * factor, sums[n][2 * i + 1] * factor);
    });
  }
}

/// Behind a split.
template <class C>
__device__ void finish_split(const Task<C>& task, const Walk<C>& walk, State<C>& state,
                             uint32_t* shared) {
  if constexpr (C::kHolds) {
    state.fold_split();
    if (!walk.ends_piece()) return;
    write_results<C>(task, walk.piece(), state.held, state.held_totals, state.held_max);
  } else {
    const AttentionPiece piece = walk.piece();
    if (piece.item.partial < 0) {
      return write_results<C>(task, piece, state.sums, state.totals, state.max);
    }
    write_partial(task, piece, state);
    merge_if_last(task, piece, 1, shared);
  }
}

/// All warps' parts of the scores, added up. By the whole block.
__device__ inline void add_parts(Parts& parts, Scores<kTile / 8>& scores) {
  HEADRACE_UNROLL
  for (int j = 0; j < kTile / 8; ++j) {
    parts[warp_id()][j][lane_id()] = {scores[j][0], scores[j][1], scores[j][2], scores[j][3]};
  }
  __syncthreads();
  HEADRACE_UNROLL
  for (int j = 0; j < kTile / 8; ++j) {
    const float4 a = parts[0][j][lane_id()], b = parts[1][j][lane_id()];
    const float4 c = parts[2][j][lane_id()], d = parts[3][j][lane_id()];
    scores[j][0] = (a.x + b.x) + (c.x + d.x);
    scores[j][1] = (a.y + b.y) + (c.y + d.y);
    scores[j][2] = (a.z + b.z) + (c.z + d.z);
    scores[j][3] = (a.w + b.w) + (c.w + d.w);
  }
  __syncthreads();
}

template <class C>
__device__ void attend_tile(const Task<C>& task, int32_t tile, const char* stage, Parts& parts,
                            State<C>& state) {
  Scores<kTile / 8> scores = {};
  score_tile(stage, state, [](int, uint32_t (&)[4]) {}, scores);
  add_parts(parts, scores);
  cap_scores(task.cap, task.scale, scores);
  mask_scores(state.keys, tile * kTile, scores);
  soften_tile<C>(weight_scale(task), scores, state);
  add_values<C>(scores, stage, state);
}

template <class C>
__global__ void __launch_bounds__(kThreads, C::kBlocks) attention_latent_kernel(Task<C> task) {
  __shared__ Parts parts;
  __shared__ uint32_t is_last;
  start_next();
  wait_for_previous();
  Walk<C> walk(task);
  if (walk.is_over()) return;
  Stages<C> stages(task);
  State<C> state;
  HEADRACE_NO_UNROLL
  for (; !walk.is_over(); walk.next()) {
    if (walk.starts_piece()) state.start_piece(task, walk.piece());
    if (walk.starts_split()) state.start_split();
    attend_tile<C>(task, walk.tile(), stages.take(), parts, state);
    if (walk.ends_split()) finish_split(task, walk, state, &is_last);
  }
}

template <class C>
void run(const AttentionArgs& args, const WorkList<AttentionItem>& list, Stream stream) {
  if (list.expected <= 0) return;
  launch("attention_latent", attention_latent_kernel<C>,
         {.grid = {work_grid(list.expected, args.shape, args.multiprocessors, C::kBlocks)},
          .threads = kThreads,
          .shared_bytes = C::kSharedBytes,
          .overlaps = true},
         stream, attention_task<typename C::T, typename C::T>(args, list));
}

/// Registers have no room for more columns; as many are DeepSeek's, and many others'.
constexpr int kMostColumns = 576;

/// Calls f(Int<kSteps>{}) for the narrowest kernel.
template <class F>
void with_steps(int32_t row_dim, F&& f) {
  if (row_dim <= 320) return f(Int<5>{});
  f(Int<kMostColumns / 64>{});
}

}  // namespace latent_pieces

bool latent_can_attend(int32_t row_dim) {
  return row_dim % 16 == 0 && row_dim <= latent_pieces::kMostColumns;
}

void attention_latent(const AttentionArgs& args, Stream stream) {
  with_half(args.dtype, [&](auto element) {
    latent_pieces::with_steps(args.shape.head_dim, [&](auto steps) {
      using T = decltype(element);
      constexpr int kSteps = decltype(steps)::value;
      latent_pieces::run<latent_pieces::Config<T, kSteps, true>>(args, args.long_items, stream);
      latent_pieces::run<latent_pieces::Config<T, kSteps, false>>(args, args.short_items, stream);
    });
  });
}

}  // namespace headrace::cuda
