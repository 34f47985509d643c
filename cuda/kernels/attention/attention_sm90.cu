#include "cuda/kernels/attention/attention_sm90.cuh"

#include "cuda/device/cp_async.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/wgmma.cuh"

namespace headrace::cuda {
namespace wgmma {
namespace {

#if defined(HEADRACE_HOPPER)

/// A lane's two rows of its group's 64: g and g + 8 of its warp's 16.
struct LaneRows {
  int32_t m[2];
  bool exists[2];
  KeyRange keys[2];
  KeyRange all;  ///< keys that every row of the group sees

  /// Some row doesn't see all keys of the tile.
  template <class C>
  __device__ bool masks(int32_t tile) const {
    return C::kAlwaysMasks || tile * kTileKeys < all.first || (tile + 1) * kTileKeys > all.end;
  }
};

/// The group's first row in a piece.
template <class C>
__device__ int first_row(int group) {
  return C::kSharesRows ? 0 : group * kGroupRows;
}

template <class C>
__device__ LaneRows lane_rows(const Task<C>& task, const AttentionPiece& piece, int group) {
  LaneRows rows;
  const int base = first_row<C>(group);
  for (int i = 0; i < 2; ++i) {
    rows.m[i] = base + warp_id() % 4 * 16 + lane_place().g + 8 * i;
    rows.exists[i] = piece.exists(task.shape, rows.m[i]);
    const int32_t position = piece.item.position + piece.token(task.shape, rows.m[i]);
    rows.keys[i] = row_keys(piece.item, task.shape, position);
  }
  const int32_t first = piece.item.position + piece.token(task.shape, base);
  const int32_t last = piece.item.position + piece.token(task.shape, base + kGroupRows - 1);
  rows.all = {row_keys(piece.item, task.shape, last).first,
              row_keys(piece.item, task.shape, first).end};
  return rows;
}

/// All who multiply by the same queries: both groups or each alone.
template <class C>
__device__ void meet_readers(int group) {
  if constexpr (C::kSharesRows) {
    named_barrier(kWithin, kConsumers);
  } else {
    named_barrier(kWithin + group, kGroupThreads);
  }
}

/// The group's queries as products take them; zeros for rows that aren't there.
template <class C>
__device__ void load_queries(const Task<C>& task, const AttentionPiece& piece, int group,
                             char* to) {
  constexpr int kChunks = C::kHeadDim / 8, kRowChunks = kRowBytes / 16;
  HEADRACE_NO_UNROLL
  for (int i = static_cast<int>(threadIdx.x) % kGroupThreads; i < kGroupRows * kChunks;
       i += kGroupThreads) {
    const int row = i / kChunks, chunk = i % kChunks, m = first_row<C>(group) + row;
    const bool exists = piece.exists(task.shape, m);
    const int64_t token = exists ? piece.item.row + piece.token(task.shape, m) : piece.item.row;
    const int64_t head = exists ? piece.head(task.shape, m) : 0;
    const int box = chunk / kRowChunks, place = (chunk ^ row) % kRowChunks;
    copy_async_16(to + (box * kGroupRows + row) * kRowBytes + place * 16,
                  task.q + token * task.q_stride + head * C::kHeadDim + chunk * 8, exists ? 16 : 0);
  }
  copy_async_commit();
  copy_async_wait<0>();
  shared_writes_fence();
}

/// A split's first product begins from nothing. A piece may begin within a split, with sums of 0.
__device__ inline bool begins_split(int32_t tile) { return tile % (kSplitKeys / kTileKeys) == 0; }

/// A lane's scores of a tile, or its weights as numbers.
using Scores = float[kTileKeys / 2];

/// Of a lane's rows, in the split that is under way and, but for their sums, in those before it.
template <class C>
struct GroupState {
  uint32_t weights[kTileKeys / 16][4];
  float sums[C::kColumns / 2];
  float max[2], held_max[2];
  float total[2], held_total[2];  // of the lane's own keys
};

template <class C>
__device__ void multiply_keys(const char* queries, const char* keys, Scores& scores) {
  const uint64_t a = tile_descriptor(queries, 0), b = tile_descriptor(keys, 0);
  HEADRACE_UNROLL
  for (int k = 0; k < C::kHeadDim / 16; ++k) {
    const int column = k % 4 * 32;
    wgmma_64xk16<typename C::T, kTileKeys>(
        scores, behind(a, k / 4 * kGroupRows * kRowBytes + column),
        behind(b, k / 4 * kTileKeys * kRowBytes + column), k > 0);
  }
  products_commit();
}

/// `values`: from the group's first column on. `keeps`: adds them to the sums so far.
template <class C>
__device__ void multiply_values(const char* values, bool keeps, GroupState<C>& state) {
  const uint64_t b = transposed_descriptor(values, kTileKeys * kRowBytes);
  HEADRACE_UNROLL
  for (int k = 0; k < kTileKeys / 16; ++k) {
    wgmma_64xk16<typename C::T, C::kColumns>(state.sums, state.weights[k],
                                             behind(b, k * 16 * kRowBytes), k > 0 || keeps);
  }
  products_commit();
}

__device__ inline void mask_scores(const LaneRows& rows, int32_t tile, Scores& scores) {
  const int32_t base = tile * kTileKeys + lane_place().q * 2;
  HEADRACE_UNROLL
  for (int i = 0; i < kTileKeys / 2; ++i) {
    const int32_t position = base + i / 4 * 8 + i % 2;
    const KeyRange& keys = rows.keys[i / 2 % 2];
    if (position < keys.first || position >= keys.end) scores[i] = kNoScore;
  }
}

/// Scores to weights, as numbers; `keep`: factors for the sums so far. `none` is kNoScore.
template <class C>
__device__ void soften(float scale, float none, Scores& scores, GroupState<C>& state,
                       float (&keep)[2]) {
  HEADRACE_UNROLL
  for (int row = 0; row < 2; ++row) {
    float largest = none;
    HEADRACE_UNROLL
    for (int j = 0; j < kTileKeys / 4; ++j) {
      largest = fmaxf(largest, scores[j / 2 * 4 + 2 * row + j % 2]);
    }
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
    const float max = max_with(state.max[row], largest, scale), base = base_of(max);
    keep[row] = factor_of(state.max[row], base);
    state.max[row] = max;
    float totals[2] = {};
    HEADRACE_UNROLL
    for (int j = 0; j < kTileKeys / 4; ++j) {
      float& score = scores[j / 2 * 4 + 2 * row + j % 2];
      score = weight_of(score, scale, base);
      totals[j % 2] += score;
    }
    state.total[row] = fmaf(state.total[row], keep[row], totals[0] + totals[1]);
  }
}

/// The weights as a product's left operand.
template <class C>
__device__ void pack_weights(const Scores& scores, GroupState<C>& state) {
  HEADRACE_UNROLL
  for (int i = 0; i < kTileKeys / 4; ++i) {
    state.weights[i / 4][i % 4] = pack_pair<typename C::T>(scores[2 * i], scores[2 * i + 1]);
  }
}

/// Takes the split's maxima and totals to those of the splits before it; the sums follow in
/// fold_sums(), once they are complete.
template <class C>
__device__ void end_split(GroupState<C>& state, float (&keep)[2], float (&add)[2]) {
  HEADRACE_UNROLL
  for (int row = 0; row < 2; ++row) {
    const Fold fold(state.held_max[row], state.max[row]);
    state.held_total[row] = fold(state.held_total[row], state.total[row]);
    state.held_max[row] = fold.max;
    state.max[row] = kNoScore;
    state.total[row] = 0.0f;
    keep[row] = fold.keep;
    add[row] = fold.add;
  }
}

/// Sums of the splits before, in shared memory: `held` is the lane's first four, for rows 0, 0, 1
/// and 1.
template <class C>
__device__ void clear_held(float4* held) {
  HEADRACE_UNROLL
  for (int j = 0; j < C::kColumns / 8; ++j) held[j * kGroupThreads] = {0.0f, 0.0f, 0.0f, 0.0f};
}

template <class C>
__device__ void fold_sums(const GroupState<C>& state, const float (&keep)[2], const float (&add)[2],
                          float4* held) {
  HEADRACE_UNROLL
  for (int j = 0; j < C::kColumns / 8; ++j) {
    const float* const sums = state.sums + 4 * j;
    float4& to = held[j * kGroupThreads];
    const float4 from = to;
    to = {fmaf(sums[0], add[0], from.x * keep[0]), fmaf(sums[1], add[0], from.y * keep[0]),
          fmaf(sums[2], add[1], from.z * keep[1]), fmaf(sums[3], add[1], from.w * keep[1])};
  }
}

template <class C>
__device__ void write_results(const Task<C>& task, const AttentionPiece& piece, int group,
                              const GroupState<C>& state, const float4* held) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+r"(group));  // the rows are found anew: no registers hold them meanwhile
#endif
  const LaneRows rows = lane_rows<C>(task, piece, group);
  const int first = C::kSharesRows ? group * C::kColumns : 0;
  HEADRACE_UNROLL
  for (int row = 0; row < 2; ++row) {
    float total = state.held_total[row];
    total += __shfl_xor_sync(kAllLanes, total, 1);
    total += __shfl_xor_sync(kAllLanes, total, 2);
    if (!rows.exists[row]) continue;
    const int32_t m = rows.m[row];
    auto* out = task.out + (piece.item.row + piece.token(task.shape, m)) * task.out_stride +
                int64_t{piece.head(task.shape, m)} * C::kHeadDim + first + lane_place().q * 2;
    const float factor = output_factor(task, piece, m, total, state.held_max[row]);
    HEADRACE_UNROLL
    for (int j = 0; j < C::kColumns / 8; ++j) {
      const float4 sums = held[j * kGroupThreads];
      *reinterpret_cast<uint32_t*>(out + j * 8) = pack_pair<typename C::T>(
          (row == 0 ? sums.x : sums.z) * factor, (row == 0 ? sums.y : sums.w) * factor);
    }
  }
}

/// A group's 64 rows of a piece.
template <class C>
struct GroupWork {
  const Task<C>& task;
  const Shared<C>& shared;
  const char* queries;
  float4* held;
  int group;
  LaneRows rows;

  /// Where the group's columns of tile n of the block begin.
  __device__ const char* wait_values(uint32_t n) const {
    constexpr int kBytes = C::kColumns / kBoxColumns * kTileKeys * kRowBytes;
    return shared.values.wait_full(n) + (C::kSharesRows ? group * kBytes : 0);
  }
};

/// Scores of tile n of the block, with nothing else under way.
template <class C>
__device__ void score_tile(const GroupWork<C>& work, uint32_t n, Scores& scores) {
  const char* keys = work.shared.keys.wait_full(n);
  products_fence();
  multiply_keys<C>(work.queries, keys, scores);
  products_wait<0>();
  hold_registers(scores);
  work.shared.keys.free(n);
}

/// Weights of the piece's first tile, and scores of the second, if there is one. `n`: the first
/// one's number in the block.
template <class C>
__device__ void begin_tiles(const GroupWork<C>& work, TileRange tiles, uint32_t n, Scores& scores,
                            GroupState<C>& state) {
  HEADRACE_UNROLL
  for (float& sum : state.sums) sum = 0.0f;
  for (int i = 0; i < 2; ++i) state.max[i] = state.held_max[i] = kNoScore;
  for (int i = 0; i < 2; ++i) state.total[i] = state.held_total[i] = 0.0f;
  clear_held<C>(work.held);
  score_tile(work, n, scores);
  float keep[2];
  mask_scores(work.rows, tiles.begin, scores);
  soften<C>(work.task.scale, kNoScore, scores, state, keep);
  pack_weights<C>(scores, state);
  if (tiles.begin + 1 < tiles.end) score_tile(work, n + 1, scores);
}

/// While the tensor cores add the values of tile n - 1 of the block and make the next one's scores,
/// the group softens the scores of tile n, which is `tile` of the sequence and begins a split or
/// doesn't; of the last one there is no next. Groups take turns at starting products. Without a
/// branch between: the compiler would wait for all products ahead of it.
template <class C, bool kMasked, bool kBegins, bool kLast>
__device__ void take_tile(const GroupWork<C>& work, int32_t tile, uint32_t n, Scores& scores,
                          Scores& next, GroupState<C>& state) {
  const Shared<C>& shared = work.shared;
  const char* values = work.wait_values(n - 1);
  const char* keys = kLast ? nullptr : shared.keys.wait_full(n + 1);
  named_barrier(kTurn + work.group, kConsumers);
  products_fence();
  multiply_values<C>(values, !begins_split(tile - 1), state);
  if constexpr (!kLast) multiply_keys<C>(work.queries, keys, next);
  named_barrier_arrive(kTurn + (work.group ^ 1), kConsumers);
  // Both the maxima and the weights begin with what is only known behind the group's turn.
  const float scale = read_behind(shared.head->scale);
  const float none = read_behind(shared.head->no_score);
  if constexpr (kMasked) mask_scores(work.rows, tile, scores);
  float keep[2], fold_keep[2], fold_add[2];
  if constexpr (kBegins) end_split<C>(state, fold_keep, fold_add);
  soften<C>(scale, none, scores, state, keep);
  hold_registers(scores);  // or they are softened behind the wait
  finish_first(state.total, shared.head->never_written);
  products_wait<0>();
  hold_registers(state.sums);
  shared.values.free(n - 1);
  if constexpr (!kLast) {
    hold_registers(next);
    shared.keys.free(n + 1);
  }
  if constexpr (kBegins) {
    fold_sums<C>(state, fold_keep, fold_add, work.held);
  } else if (__any_sync(kAllLanes, keep[0] != 1.0f || keep[1] != 1.0f)) {
    HEADRACE_UNROLL
    for (int i = 0; i < C::kColumns / 2; ++i) state.sums[i] *= keep[i / 2 % 2];
  }
  pack_weights<C>(scores, state);
}

/// Adds the values of the piece's last tile, number n of the block.
template <class C>
__device__ void end_tiles(const GroupWork<C>& work, int32_t tile, uint32_t n,
                          GroupState<C>& state) {
  const char* values = work.wait_values(n);
  products_fence();
  multiply_values<C>(values, !begins_split(tile), state);
  products_wait<0>();
  hold_registers(state.sums);
  work.shared.values.free(n);
  float keep[2], add[2];
  end_split<C>(state, keep, add);
  fold_sums<C>(state, keep, add, work.held);
}

/// Two tiles that every row sees all of, an even one and the next, which aren't the last.
template <class C>
__device__ void take_pair(const GroupWork<C>& work, int32_t tile, uint32_t n, Scores& scores,
                          Scores& next, GroupState<C>& state) {
  if (begins_split(tile)) {
    take_tile<C, false, true, false>(work, tile, n, scores, next, state);
  } else {
    take_tile<C, false, false, false>(work, tile, n, scores, next, state);
  }
  take_tile<C, false, false, false>(work, tile + 1, n + 1, next, scores, state);
}

/// Any tile behind the first.
template <class C, bool kLast>
__device__ void take_one(const GroupWork<C>& work, int32_t tile, uint32_t n, Scores& scores,
                         Scores& next, GroupState<C>& state) {
  if (begins_split(tile)) {
    take_tile<C, true, true, kLast>(work, tile, n, scores, next, state);
  } else {
    take_tile<C, true, false, kLast>(work, tile, n, scores, next, state);
  }
  if constexpr (!kLast) {
    HEADRACE_UNROLL
    for (int i = 0; i < kTileKeys / 2; ++i) scores[i] = next[i];
  }
}

/// `n`: tiles of the block so far.
template <class C>
__device__ void attend(const Task<C>& task, const AttentionPiece& piece, int group,
                       const Shared<C>& shared, uint32_t& n) {
  const TileRange tiles = tiles_of(keys_of(piece.item, task.shape));
  char* const queries = shared.queries + (C::kSharesRows ? 0 : group) * C::kQueryBytes;
  meet_readers<C>(group);  // nobody multiplies by the last piece's
  load_queries<C>(task, piece, group, queries);
  meet_readers<C>(group);
  const GroupWork<C> work{
      task, shared, queries, shared.lane_held(group), group, lane_rows<C>(task, piece, group)};
  const auto whole = [&](int32_t tile) {
    return !work.rows.template masks<C>(tile) && !work.rows.template masks<C>(tile + 1);
  };
  GroupState<C> state;
  Scores scores, next;
  begin_tiles(work, tiles, n, scores, state);
  int32_t tile = tiles.begin + 1;
  HEADRACE_NO_UNROLL
  while (tile + 1 < tiles.end) {
    HEADRACE_NO_UNROLL
    for (; tile % 2 == 0 && tile + 3 < tiles.end && whole(tile); tile += 2, n += 2) {
      take_pair<C>(work, tile, n + 1, scores, next, state);
    }
    take_one<C, false>(work, tile++, ++n, scores, next, state);
  }
  if (tile < tiles.end) take_one<C, true>(work, tile, ++n, scores, next, state);
  end_tiles(work, tiles.end - 1, n++, state);
  write_results<C>(task, piece, group, state, work.held);
}

#endif

template <class C>
__global__ void __launch_bounds__(kThreads, 1)
    attention_wgmma_kernel(const __grid_constant__ TensorMap keys,
                           const __grid_constant__ TensorMap values, Task<C> task) {
#if defined(HEADRACE_HOPPER)
  const Shared<C> shared(shared_memory());
  // From one lane, so that the compiler knows it for the warp's.
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kGroupThreads, 0) - 1;
  start_next();
  if (threadIdx.x == 0) {
    shared.keys.init();
    shared.values.init();
    barrier_init(&shared.head->values_landed, 1);
    shared.head->scale = task.scale;
    shared.head->no_score = kNoScore;
    barrier_init_fence();
  }
  __syncthreads();
  wait_for_previous();
  if (group < 0) {
    give_registers<kCopyRegisters>();
    const int warp = __shfl_sync(kAllLanes, warp_id(), 0);
    if (warp < 2) copy_tiles<C>(task, warp == 0 ? &keys : &values, warp == 1, shared);
    return;
  }
  take_registers<kMultiplyRegisters>();
  if (group == 1) named_barrier_arrive(kTurn, kConsumers);  // the first turn is group 0's
  uint32_t n = 0;
  for_each_piece(task,
                 [&](const AttentionPiece& piece) { attend<C>(task, piece, group, shared, n); });
#endif
}

template <class C>
void run(const AttentionArgs& args, Stream stream) {
  using T = typename C::T;
  const int64_t rows = (args.num_blocks - 1) * args.layout.block_stride + args.layout.block_rows();
  const int64_t pieces =
      int64_t{args.long_items.expected} * args.shape.num_kv_heads * args.shape.parts();
  HEADRACE_CHECK(args.num_blocks >= 1 && rows <= 0x7fffffff && pieces <= 0x7fffffff,
                 args.num_blocks, " blocks, ", pieces, " pieces");
  const ConstMatrix keys(args.keys, rows, C::kHeadDim, C::kHeadDim);
  ConstMatrix values = keys;
  values.data = args.values;
  const int box_rows = least(args.layout.block_size, kTileKeys);
  launch("attention_wgmma", attention_wgmma_kernel<C>,
         {.grid = {work_grid(args.long_items.expected, args.shape, args.multiprocessors, 1)},
          .threads = kThreads,
          .shared_bytes = C::kSharedBytes,
          .overlaps = true},
         stream, make_tensor_map(keys, args.dtype, box_rows),
         make_tensor_map(values, args.dtype, box_rows),
         attention_task<T, T>(args, args.long_items));
}

}  // namespace
}  // namespace wgmma

bool wgmma_can_attend(const AttentionKind& kind) {
  // Blocks divide tiles, in groups of 8 rows, or are divided by them.
  const int32_t size = kind.block_size;
  const bool boxes = size == 8 || size == 16 || size == 32 || size % kTileKeys == 0;
  return (kind.dtype == DType::kBF16 || kind.dtype == DType::kF16) &&
         kind.dtype == kind.cache_dtype && !kind.latent && boxes && kind.scale > 0.0f &&
         kind.soft_cap == 0.0f &&
         (kind.head_dim == 64 || kind.head_dim == 128 || kind.head_dim == 256);
}

void attention_wgmma(const AttentionArgs& args, Stream stream) {
  if (args.long_items.expected <= 0) return;
  with_half(args.dtype, [&](auto element) {
    using T = decltype(element);
    switch (args.shape.head_dim) {
      case 64:
        return wgmma::run<wgmma::Config<T, 64>>(args, stream);
      case 128:
        return wgmma::run<wgmma::Config<T, 128>>(args, stream);
      default:
        return wgmma::run<wgmma::Config<T, 256>>(args, stream);
    }
  });
}

}  // namespace headrace::cuda
