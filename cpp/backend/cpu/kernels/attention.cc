#include "backend/cpu/kernels/attention_tile.h"

// Compiled once per ISA. kernels_attention.h states the order of every sum.

namespace headrace::HEADRACE_ISA {

void write_kv_f32(const KvWriteTask& task);
void write_kv_bf16(const KvWriteTask& task);
void write_kv_f16(const KvWriteTask& task);

namespace {

constexpr float kNever = -__builtin_inff();

/// A running softmax per row. A row that has seen no key yet has maximum -inf and total 0.
struct Partial {
  float* sums;    ///< [rows][head_dim]
  float* maxima;  ///< [rows]
  float* totals;  ///< [rows]
};

Partial partial_at(float* data, int head_dim, int rows) {
  float* maxima = data + static_cast<int64_t>(rows) * head_dim;
  return {data, maxima, maxima + rows};
}

void clear(const Partial& partial, int head_dim, int rows) {
  for (int i = 0; i < rows * head_dim; i += kLanes) store(partial.sums + i, zero());
  for (int r = 0; r < rows; ++r) {
    partial.maxima[r] = kNever;
    partial.totals[r] = 0.0f;
  }
}

bool is_empty(const Partial& partial, int row) {
  return partial.maxima[row] == kNever && partial.totals[row] == 0.0f;
}

float exp_of(float x) {
  float lanes[kLanes];
  store(lanes, exp(set1(x)));
  return lanes[0];
}

/// Lanes [first, end) of the tile that a row sees; none if first >= end.
struct Visible {
  int first;
  int end;
};

int clamp_to_tile(int64_t x) {
  return x < 0 ? 0 : x > kTileTokens ? kTileTokens : static_cast<int>(x);
}

Visible visible_lanes(const AttentionTask& task, int row, int64_t tile_start) {
  const int64_t position = static_cast<int64_t>(task.first_position) + row / task.num_heads;
  const int64_t first = task.window > 0 ? position - task.window + 1 : 0;
  return {clamp_to_tile(first - tile_start), clamp_to_tile(position + 1 - tile_start)};
}

/// Scores of the vector at `lane`; -inf for keys that the row does not see.
HEADRACE_SIMD_INLINE F32 visible_scores(const float* scores, int lane, Visible visible) {
  alignas(64) static const float kIota[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  F32 x = load(scores + lane);
  if (lane >= visible.first && lane + kLanes <= visible.end) return x;
  const F32 index = add(load(kIota), set1(static_cast<float>(lane)));
  const F32 first = set1(static_cast<float>(visible.first));
  const F32 end = set1(static_cast<float>(visible.end));
  x = select_greater(first, index, set1(kNever), x);
  return select_greater(end, index, x, set1(kNever));
}

/// Scores to probabilities relative to the row's new maximum; what was summed before is rescaled.
void update_softmax(float* scores, Visible visible, const Partial& partial, int row, int head_dim) {
  const int begin = visible.first / kLanes * kLanes;
  F32 top = set1(kNever);
  for (int i = begin; i < visible.end; i += kLanes) {
    top = max(visible_scores(scores, i, visible), top);
  }
  const float tile_max = reduce_max(top);
  const float old_max = partial.maxima[row];
  if (tile_max > old_max) {
    const float factor = exp_of(old_max - tile_max);
    float* sums = partial.sums + static_cast<int64_t>(row) * head_dim;
    for (int i = 0; i < head_dim; i += kLanes) store(sums + i, mul(load(sums + i), set1(factor)));
    partial.totals[row] *= factor;
    partial.maxima[row] = tile_max;
  }
  const F32 new_max = set1(partial.maxima[row]);
  F32 total = zero();
  for (int i = begin; i < visible.end; i += kLanes) {
    const F32 p = exp(sub(visible_scores(scores, i, visible), new_max));
    store(scores + i, p);
    total = add(total, p);
  }
  partial.totals[row] += reduce_add(total);
}

/// add_values for one row, often with nothing to add.
template <class Kv>
void add_row_values(const Tile<Kv>& tile, const float* p, int first, int end, float* sums) {
  if (first < end) add_values<Kv, 1>(tile, p, first, end, sums);
}

/// One tile for `Rows` rows. Keys that only some of the rows see are added row by row.
template <class Kv, int Rows>
void attend_block(const Tile<Kv>& tile, const float* q, const Visible* visible, float* scores,
                  const Partial& partial) {
  int first_seen = kTileTokens, end_seen = 0;
  Visible common{0, kTileTokens};
  for (int r = 0; r < Rows; ++r) {
    const Visible v = visible[r];
    if (v.first > common.first) common.first = v.first;
    if (v.end < common.end) common.end = v.end;
    if (v.first >= v.end) continue;
    if (v.first < first_seen) first_seen = v.first;
    if (v.end > end_seen) end_seen = v.end;
  }
  if (first_seen >= end_seen) return;
  score_keys<Kv, Rows>(tile, q, first_seen / kKvLanes * kKvLanes,
                       (end_seen + kKvLanes - 1) / kKvLanes * kKvLanes, scores);
  if (common.first >= common.end) common = {kTileTokens, kTileTokens};
  for (int r = 0; r < Rows; ++r) {
    const Visible v = visible[r];
    if (v.first >= v.end) continue;
    update_softmax(scores + r * kTileTokens, v, partial, r, tile.head_dim);
    add_row_values(tile, scores + r * kTileTokens, v.first,
                   v.end < common.first ? v.end : common.first,
                   partial.sums + static_cast<int64_t>(r) * tile.head_dim);
  }
  if (common.first >= kTileTokens) return;
  add_values<Kv, Rows>(tile, scores, common.first, common.end, partial.sums);
  for (int r = 0; r < Rows; ++r) {
    add_row_values(tile, scores + r * kTileTokens, common.end, visible[r].end,
                   partial.sums + static_cast<int64_t>(r) * tile.head_dim);
  }
}

template <class Kv, int Rows>
void attend_rows(int rows, const Tile<Kv>& tile, const float* q, const Visible* visible,
                 float* scores, const Partial& partial) {
  if (rows == Rows) {
    attend_block<Kv, Rows>(tile, q, visible, scores, partial);
  } else if constexpr (Rows > 1) {
    attend_rows<Kv, Rows - 1>(rows, tile, q, visible, scores, partial);
  }
}

/// The keys of the 16 tokens at `position`.
template <class Kv>
const typename Kv::Element* keys_at(const AttentionTask& task, int64_t position) {
  const int block_size = task.cache->block_size;
  return key_group<Kv>(*task.cache, task.blocks[position / block_size], task.kv_head,
                       static_cast<int>(position % block_size) / kKvLanes);
}

/// The groups of the tile at `start` that hold positions in [first, end), and those that the task
/// reads next.
template <class Kv>
Tile<Kv> locate(const AttentionTask& task, int64_t start, int64_t first, int64_t end) {
  Tile<Kv> tile{};
  tile.head_dim = task.cache->head_dim;
  const int64_t task_end = static_cast<int64_t>(task.end_split) * kSplitTokens;
  for (int g = 0; g < kTileGroups; ++g) {
    const int64_t position = start + g * kKvLanes, next = position + kTileTokens;
    if (position + kKvLanes <= first || position >= end) continue;
    tile.keys[g] = keys_at<Kv>(task, position);
    tile.values[g] = tile.keys[g] + task.cache->value_offset;
    tile.next_keys[g] = next < end && next < task_end ? keys_at<Kv>(task, next) : tile.keys[g];
  }
  return tile;
}

/// The part of one split that the task's rows see.
template <class Kv>
void attend_split(const AttentionTask& task, int64_t split, const float* q, float* scores,
                  const Partial& partial) {
  const int rows = task.num_positions * task.num_heads;
  const int head_dim = task.cache->head_dim;
  const int64_t end_position = static_cast<int64_t>(task.first_position) + task.num_positions;
  const int64_t first_key = task.window > 0 && task.first_position >= task.window
                                ? static_cast<int64_t>(task.first_position) - task.window + 1
                                : 0;
  const int64_t split_start = split * kSplitTokens;
  const int64_t split_end = split_start + kSplitTokens;
  clear(partial, head_dim, rows);
  int64_t start = first_key > split_start ? first_key / kTileTokens * kTileTokens : split_start;
  for (; start < split_end && start < end_position; start += kTileTokens) {
    const Tile<Kv> tile = locate<Kv>(task, start, first_key, end_position);
    Visible visible[kMaxTaskRows];
    for (int r = 0; r < rows; ++r) visible[r] = visible_lanes(task, r, start);
    for (int r = 0; r < rows; r += kBlockRows) {
      const int count = rows - r < kBlockRows ? rows - r : kBlockRows;
      attend_rows<Kv, kBlockRows>(count, tile, q + static_cast<int64_t>(r) * head_dim, visible + r,
                                  scores,
                                  {partial.sums + static_cast<int64_t>(r) * head_dim,
                                   partial.maxima + r, partial.totals + r});
    }
  }
}

/// into = the softmax over the keys of both, `from`'s after `into`'s.
void merge_partial(const Partial& into, const Partial& from, int head_dim, int rows) {
  for (int r = 0; r < rows; ++r) {
    if (is_empty(from, r)) continue;
    float* a = into.sums + static_cast<int64_t>(r) * head_dim;
    const float* b = from.sums + static_cast<int64_t>(r) * head_dim;
    if (is_empty(into, r)) {
      for (int i = 0; i < head_dim; i += kLanes) store(a + i, load(b + i));
      into.maxima[r] = from.maxima[r];
      into.totals[r] = from.totals[r];
      continue;
    }
    const float top = into.maxima[r] > from.maxima[r] ? into.maxima[r] : from.maxima[r];
    const float factor_a = exp_of(into.maxima[r] - top);
    const float factor_b = exp_of(from.maxima[r] - top);
    for (int i = 0; i < head_dim; i += kLanes) {
      const F32 scaled = mul(load(a + i), set1(factor_a));
      store(a + i, fma(load(b + i), set1(factor_b), scaled));
    }
    into.totals[r] = into.totals[r] * factor_a + from.totals[r] * factor_b;
    into.maxima[r] = top;
  }
}

void write_output(const Partial& partial, int head_dim, int num_positions, int num_heads,
                  float* out, int64_t out_stride) {
  for (int r = 0; r < num_positions * num_heads; ++r) {
    const F32 inverse = div(set1(1.0f), set1(partial.totals[r]));
    const float* sums = partial.sums + static_cast<int64_t>(r) * head_dim;
    float* to = out + r / num_heads * out_stride + static_cast<int64_t>(r % num_heads) * head_dim;
    for (int i = 0; i < head_dim; i += kLanes) store(to + i, mul(load(sums + i), inverse));
  }
}

/// Scales the queries and lays them out by register blocks (query_index).
void pack_queries(const AttentionTask& task, float* q) {
  const int head_dim = task.cache->head_dim;
  const F32 scale = set1(task.scale);
  for (int r = 0; r < task.num_positions * task.num_heads; ++r) {
    const float* from = task.queries + r / task.num_heads * task.query_stride +
                        static_cast<int64_t>(r % task.num_heads) * head_dim;
    float scaled[kMaxHeadDim];
    for (int i = 0; i < head_dim; i += kLanes) store(scaled + i, mul(load(from + i), scale));
    float* to = q + static_cast<int64_t>(r / kBlockRows * kBlockRows) * head_dim;
    for (int i = 0; i < head_dim; i += 2) {
      __builtin_memcpy(to + query_index(r % kBlockRows, i), scaled + i, 2 * sizeof(float));
    }
  }
}

template <class Kv>
void attend(const AttentionTask& task) {
  const int rows = task.num_positions * task.num_heads;
  const int head_dim = task.cache->head_dim;
  float* q = task.scratch;
  float* scores = q + static_cast<int64_t>(kMaxTaskRows) * head_dim;
  float* partials = scores + kMaxTaskRows * kTileTokens;
  pack_queries(task, q);
  if (task.partials != nullptr) {
    for (int64_t split = task.first_split; split < task.end_split; ++split) {
      float* to = task.partials + (split - task.first_split) * partial_floats(head_dim, rows);
      attend_split<Kv>(task, split, q, scores, partial_at(to, head_dim, rows));
    }
    return;
  }
  const Partial whole = partial_at(partials, head_dim, rows);
  const Partial part = partial_at(partials + partial_floats(head_dim, rows), head_dim, rows);
  attend_split<Kv>(task, task.first_split, q, scores, whole);
  for (int64_t split = task.first_split + 1; split < task.end_split; ++split) {
    attend_split<Kv>(task, split, q, scores, part);
    merge_partial(whole, part, head_dim, rows);
  }
  write_output(whole, head_dim, task.num_positions, task.num_heads, task.out, task.out_stride);
}

void merge(const MergeTask& task) {
  const int rows = task.num_positions * task.num_heads;
  const Partial whole = partial_at(task.partials, task.head_dim, rows);
  for (int i = 1; i < task.num_splits; ++i) {
    float* from = task.partials + i * partial_floats(task.head_dim, rows);
    merge_partial(whole, partial_at(from, task.head_dim, rows), task.head_dim, rows);
  }
  write_output(whole, task.head_dim, task.num_positions, task.num_heads, task.out, task.out_stride);
}

}  // namespace

extern const AttentionKernels kAttentionKernels;
const AttentionKernels kAttentionKernels = {{write_kv_f32, attend<KvF32>},
                                            {write_kv_bf16, attend<KvBF16>},
                                            {write_kv_f16, attend<KvF16>},
                                            merge};

}  // namespace headrace::HEADRACE_ISA
