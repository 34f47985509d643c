#pragma once

// Short pieces, of up to 16 rows: a block takes one split after another and has the next ones' keys
// and values on their way meanwhile. Its 4 warps score a tile of the split each, and then sum a
// part of the columns each over all of its keys; a warp's keys and columns reach it through stages
// of its own, so that warps meet only twice a split, for the tiles' maxima and for their weights.
// Keys and values are of the queries' type, or codes (attention_codes.cuh).

#include "cuda/kernels/attention/attention_short_pipeline.cuh"

namespace headrace::cuda {
namespace short_pieces {

/// Products of a piece of keys, number `piece` of the warp's tile.
template <class C>
__device__ void add_scores(const Queries<C>& queries, const char* stage, int piece,
                           TileScores& scores) {
  using T = typename C::T;
  const int lane = fresh_lane_id(), matrix = lane / 8, row = lane % 8;
  if constexpr (C::kCodes) {
    constexpr int kGroups = C::kKeyRows / 16;
    score_codes<typename C::Cache, C::kChunks, typename C::KeyPlaces, kGroups>(
        stage, [&](int step, uint32_t (&a)[4]) { queries.get(step, lane, a); },
        scores + 2 * kGroups * piece);
  } else if constexpr (C::kKeyRows == 16) {
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
  float max[2], totals[2], zeros[2];
  float sums[C::kOwnSums][4];

  __device__ bool sees(int tile) const {
    return tile * kTileKeys < seen.end && (tile + 1) * kTileKeys > seen.first;
  }
};

/// Whether some row doesn't see all keys of the tile that begins at position `tile`.
template <class C>
__device__ bool masks(const Task<C>& task, const AttentionPiece& piece, int32_t tile) {
  const int32_t first = piece.item.position, last = first + piece.item.num_rows - 1;
  return tile < row_keys(piece.item, task.shape, last).first ||
         tile + kTileKeys > row_keys(piece.item, task.shape, first).end;
}

/// Between the barriers: what the tiles' maxima say, and the warp's weights.
template <class C>
__device__ void share_weights(const Task<C>& task, TileScores& scores, bool few,
                              SplitState<C>& split, const TileScales* scales,
                              typename C::Block& exchange) {
  const auto [g, q] = lane_place();
  const float scale = C::kCodes ? 1.0f : weight_scale(task);
  float totals[2], bases[2];
  HEADRACE_UNROLL
  for (int i = 0; i < 2; ++i) {
    float max = kNoScore, own_base = 0.0f;
    HEADRACE_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      if (!split.sees(tile)) continue;
      const float next = max_with(max, exchange.max[tile][g + 8 * i], scale);
      const float base = base_of(next);
      split.keep[tile][i] = factor_of(max, base);
      if (tile == warp_id()) own_base = base;
      max = next;
    }
    split.max[i] = max;
    bases[i] = own_base;
    if constexpr (!C::kCodes) totals[i] = soften(scores, i, scale, own_base);
  }
  if (!split.sees(warp_id())) return;
  if constexpr (C::kCodes) {
    const CodeTotals made = few ? soften_codes<typename C::Cache, 1>(*scales, bases, scores)
                                : soften_codes<typename C::Cache, 2>(*scales, bases, scores);
    for (int i = 0; i < 2; ++i) {
      totals[i] = made.total[i];
      exchange.zeros[warp_id()][g + 8 * i][q] = made.zero[i];
    }
  }
  for (int i = 0; i < 2; ++i) exchange.totals[warp_id()][g + 8 * i][q] = totals[i];
  HEADRACE_UNROLL
  for (int step = 0; step < kTileSteps; ++step) {
    uint32_t a[4];
    pack_weights<typename C::Product>(scores, step, a);
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
    if constexpr (C::kCodes) {
      add_code_values<typename C::Cache, C::kOwnChunks, typename C::ValuePlaces>(
          stage, 32 * pair + lane, 0,
          C::kAllOwn ? C::kOwnChunks : C::kChunks - warp_id() * C::kOwnChunks, first_a, second_a,
          split.sums);
    } else {
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
}

template <class C>
__device__ void sum_values(Pipeline<C>& pipeline, const typename C::Block& exchange,
                           SplitState<C>& split) {
  const auto [g, q] = lane_place();
  HEADRACE_UNROLL
  for (int i = 0; i < C::kOwnSums * 4; ++i) split.sums[i / 4][i % 4] = 0.0f;
  for (int i = 0; i < 2; ++i) split.totals[i] = split.zeros[i] = 0.0f;
  HEADRACE_UNROLL
  for (int tile = 0; tile < kTiles; ++tile) {
    if (split.sees(tile)) {
      HEADRACE_UNROLL
      for (int i = 0; i < C::kOwnSums * 4; ++i) {
        split.sums[i / 4][i % 4] *= split.keep[tile][i % 4 / 2];
      }
      for (int i = 0; i < 2; ++i) {
        split.totals[i] =
            fmaf(split.totals[i], split.keep[tile][i], exchange.totals[tile][g + 8 * i][q]);
        if constexpr (C::kCodes) {
          split.zeros[i] =
              fmaf(split.zeros[i], split.keep[tile][i], exchange.zeros[tile][g + 8 * i][q]);
        }
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

/// The warp's columns of row i; `partial` null: of the output.
template <class C>
__device__ void write_code_row(const SplitState<C>& split, int i, float* partial,
                               typename C::T* out, float factor) {
  using Code = typename C::Cache;
  constexpr int kColumns = CodeVector<Code>::kLaneColumns;
  HEADRACE_UNROLL
  for (int v = 0; v < C::kOwnChunks; ++v) {
    const int first =
        (warp_id() * C::kOwnChunks + v) * CodeVector<Code>::kColumns + kColumns * lane_place().q;
    if (first >= C::kHeadDim) continue;
    HEADRACE_UNROLL
    for (int j = 0; j < kColumns; j += 2) {
      const float sums[2] = {split.sums[sum_chunk<Code>(v, j)][2 * i + sum_place<Code>(j)],
                             split.sums[sum_chunk<Code>(v, j + 1)][2 * i + sum_place<Code>(j + 1)]};
      if (partial != nullptr) {
        *reinterpret_cast<float2*>(partial + first + j) = {sums[0], sums[1]};
      } else {
        *reinterpret_cast<uint32_t*>(out + first + j) =
            pack_pair<typename C::T>(sums[0] * factor, sums[1] * factor);
      }
    }
  }
}

template <class C>
__device__ void write_split(const Task<C>& task, const AttentionPiece& piece, const LaneRows& rows,
                            SplitState<C>& split) {
  const int q = lane_place().q;
  if constexpr (C::kCodes) finish_code_sums<typename C::Cache>(split.zeros, split.sums);
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
    const float factor =
        is_partial ? 0.0f : output_factor(task, piece, rows.m[i], total, split.max[i]);
    if constexpr (C::kCodes) {
      write_code_row<C>(split, i, is_partial ? partial : nullptr, out, factor);
    } else {
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
}

template <class C>
__device__ void attend(const Task<C>& task, const AttentionPiece& piece, Pipeline<C>& pipeline,
                       Queries<C>& queries, uint32_t n, typename C::Block& exchange) {
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
  const TileScales* scales = nullptr;
  const bool few = piece.item.num_rows * task.shape.part_heads() <= 8;
  if constexpr (C::kCodes) {
    TileScales& own = exchange.scales[n % 2][warp_id()];
    const int tile = warp_id() * kTileKeys;
    clear_unseen_scales<typename C::Cache>({split.seen.first - tile, split.seen.end - tile}, own);
    __syncwarp();
    if (few) {
      scale_scores<1>(own, queries.codes, task.scale, task.cap, scores);
    } else {
      scale_scores<2>(own, queries.codes, task.scale, task.cap, scores);
    }
    scales = &own;
  }
  if constexpr (!C::kCodes) cap_scores(task.cap, task.scale, scores);
  if (!C::kCodes || masks<C>(task, piece, base + warp_id() * kTileKeys)) {
    mask_scores(queries.rows.keys, base + warp_id() * kTileKeys, scores);
  }
  HEADRACE_UNROLL
  for (int i = 0; i < 2; ++i) {
    const float max = largest_score(scores, i);
    if (lane_place().q == 0) exchange.max[warp_id()][lane_place().g + 8 * i] = max;
  }
  __syncthreads();
  share_weights(task, scores, few, split, scales, exchange);
  __syncthreads();
  sum_values(pipeline, exchange, split);
  write_split(task, piece, queries.rows, split);
}

/// A block takes neighbouring splits of the list.
template <class C>
__global__ void __launch_bounds__(kThreads, C::kBlocks) attention_short_kernel(Task<C> task) {
  char* const memory = shared_memory();
  auto& exchange = *reinterpret_cast<typename C::Block*>(memory);
  char* const queries_at = memory + sizeof(typename C::Block);
  char* const stages = queries_at + C::kQueryBytes;
  start_next();
  const uint32_t count = static_cast<uint32_t>(load_other(task.count)) *
                         static_cast<uint32_t>(task.shape.num_kv_heads * task.shape.parts());
  const auto share = [&](uint32_t block) {
    return static_cast<uint32_t>(uint64_t{count} * block / gridDim.x);
  };
  const uint32_t end = share(blockIdx.x + 1);
  uint32_t n = share(blockIdx.x);
  if (n >= end) {
    wait_for_previous();
    return;
  }
  // Waits for the kernel before, once it has asked for what doesn't depend on it.
  Pipeline<C> pipeline(task, exchange, stages + warp_id() * C::kStages * C::kStageBytes, n, end);
  Queries<C> queries(queries_at);
  int32_t made = 0;  // of a sequence's head, since blocks last told one another
  HEADRACE_NO_UNROLL
  for (; n < end; ++n) {
    const AttentionPiece piece = split_at<C>(task, n);
    attend<C>(task, piece, pipeline, queries, n, exchange);
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
  const int64_t splits =
      int64_t{args.short_items.expected} * args.shape.num_kv_heads * args.shape.parts();
  HEADRACE_CHECK(splits <= 0x7fffffff, splits);
  launch(
      "attention_short", attention_short_kernel<C>,
      {.grid = {work_grid(args.short_items.expected, args.shape, args.multiprocessors, C::kBlocks)},
       .threads = kThreads,
       .shared_bytes = C::kSharedBytes,
       .overlaps = true},
      stream, attention_task<typename C::T, typename C::Cache>(args, args.short_items));
}

}  // namespace short_pieces

}  // namespace headrace::cuda
