#include "backend/cpu/kernels/attention_float.h"
#include "backend/cpu/kernels/attention_pairs.h"
#include "backend/cpu/kernels/attention_softmax.h"

// Compiled once per ISA. kernels_attention.h states the order of every sum.

namespace headrace::HEADRACE_ISA {

void write_kv_f32(const KvWriteTask& task);
void write_kv_bf16(const KvWriteTask& task);
void write_kv_f16(const KvWriteTask& task);
void write_kv_i8(const KvWriteTask& task);
void write_kv_u4(const KvWriteTask& task);

namespace {

int clamp_to_tile(int64_t x) {
  return x < 0 ? 0 : x > kTileTokens ? kTileTokens : static_cast<int>(x);
}

Visible visible_lanes(const AttentionTask& task, int row, int64_t tile_start) {
  const int64_t position = static_cast<int64_t>(task.first_position) + row / task.num_heads;
  const int64_t first = task.window > 0 ? position - task.window + 1 : 0;
  return {clamp_to_tile(first - tile_start), clamp_to_tile(position + 1 - tile_start)};
}

/// What the rows of a block see of a tile.
struct BlockView {
  Visible any;     ///< what some row sees, and perhaps some between
  Visible common;  ///< what all rows see, from and to a multiple of `step`; else none, at the end
};

BlockView view_of(const Visible* visible, int rows, int step) {
  BlockView view{{kTileTokens, 0}, {0, kTileTokens}};
  for (int r = 0; r < rows; ++r) {
    const Visible v = visible[r];
    if (v.first > view.common.first) view.common.first = v.first;
    if (v.end < view.common.end) view.common.end = v.end;
    if (v.first >= v.end) continue;
    if (v.first < view.any.first) view.any.first = v.first;
    if (v.end > view.any.end) view.any.end = v.end;
  }
  view.common.first = (view.common.first + step - 1) / step * step;
  view.common.end = view.common.end / step * step;
  if (view.common.first >= view.common.end) view.common = {kTileTokens, kTileTokens};
  return view;
}

/// The values that each row sees: together what all see, row by row what only some do.
template <class Products, int Rows>
void add_seen_values(const Tile& tile, const typename Products::Weights& weights,
                     const Visible* visible, Visible common, float* sums) {
  const int head_dim = tile.head_dim;
  for (int r = 0; r < Rows; ++r) {
    const int end = visible[r].end < common.first ? visible[r].end : common.first;
    Products::add_row(tile, weights, r, visible[r].first, end, sums + r * head_dim);
  }
  if (common.first >= common.end) return;
  add_values<Products, Rows>(tile, weights, common.first, common.end, sums);
  for (int r = 0; r < Rows; ++r) {
    const int first = visible[r].first > common.end ? visible[r].first : common.end;
    Products::add_row(tile, weights, r, first, visible[r].end, sums + r * head_dim);
  }
}

/// One tile for `Rows` rows.
template <class Products, int Rows>
void attend_block(const Tile& tile, const float* q, const Visible* visible, float* scores,
                  const Partial& partial) {
  const BlockView view = view_of(visible, Rows, Products::kValueStep);
  if (view.any.first >= view.any.end) return;
  const int head_dim = tile.head_dim;
  score_keys<Products, Rows>(tile, q, view.any.first / kKvLanes * kKvLanes,
                             (view.any.end + kKvLanes - 1) / kKvLanes * kKvLanes, scores);
  typename Products::Weights weights;
  update_softmax(scores, visible, Rows, partial, head_dim);
  for (int r = 0; r < Rows; ++r) {
    Products::weigh(tile, scores + r * kTileTokens, visible[r], r, weights);
  }
  if constexpr (Products::kMasksValues) {
    add_seen_values<Products, Rows>(tile, weights, visible, view.common, partial.sums);
  } else {
    constexpr int kStep = Products::kValueStep;
    add_values<Products, Rows>(tile, weights, view.any.first / kStep * kStep,
                               (view.any.end + kStep - 1) / kStep * kStep, partial.sums);
  }
}

template <class Products, int Rows>
void attend_rows(int rows, const Tile& tile, const float* q, const Visible* visible, float* scores,
                 const Partial& partial) {
  if (rows == Rows) {
    attend_block<Products, Rows>(tile, q, visible, scores, partial);
  } else if constexpr (Rows > 1) {
    attend_rows<Products, Rows - 1>(rows, tile, q, visible, scores, partial);
  }
}

/// The groups of the tile at `start` that hold positions in [first, end), and those that the task
/// reads next.
Tile locate(const AttentionTask& task, int64_t start, int64_t first, int64_t end) {
  const KvLayerView& cache = *task.cache;
  const auto keys_at = [&](int64_t position) {
    return key_group(cache, task.blocks[position / cache.block_size], task.kv_head,
                     static_cast<int>(position % cache.block_size) / kKvLanes);
  };
  Tile tile{};
  tile.head_dim = cache.head_dim;
  const int64_t task_end = static_cast<int64_t>(task.end_split) * kSplitTokens;
  for (int g = 0; g < kTileGroups; ++g) {
    const int64_t position = start + g * kKvLanes, next = position + kTileTokens;
    if (position + kKvLanes <= first || position >= end) continue;
    tile.keys[g] = keys_at(position);
    tile.values[g] = tile.keys[g] + cache.value_offset;
    tile.next_keys[g] = next < end && next < task_end ? keys_at(next) : tile.keys[g];
    tile.key_scales[g] = key_scales(cache, task.blocks[position / cache.block_size], task.kv_head,
                                    static_cast<int>(position % cache.block_size) / kKvLanes);
    tile.value_scales[g] = tile.key_scales[g] + cache.value_scale_offset;
  }
  return tile;
}

/// The part of one split that the task's rows see.
template <class Products>
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
    const Tile tile = locate(task, start, first_key, end_position);
    Visible visible[kMaxTaskRows];
    for (int r = 0; r < rows; ++r) visible[r] = visible_lanes(task, r, start);
    for (int r = 0; r < rows; r += kBlockRows) {
      const int count = rows - r < kBlockRows ? rows - r : kBlockRows;
      attend_rows<Products, kBlockRows>(
          count, tile, q + r / kBlockRows * query_block_floats(head_dim), visible + r, scores,
          {partial.sums + static_cast<int64_t>(r) * head_dim, partial.maxima + r,
           partial.totals + r});
    }
  }
}

/// Scales the queries and lays them out by register blocks.
template <class Products>
void pack_queries(const AttentionTask& task, float* q) {
  constexpr float kLog2E = 0x1.715476p+0f;
  const int head_dim = task.cache->head_dim;
  const F32 scale = set1(task.scale * kLog2E);
  for (int r = 0; r < task.num_positions * task.num_heads; ++r) {
    const float* from = task.queries + r / task.num_heads * task.query_stride +
                        static_cast<int64_t>(r % task.num_heads) * head_dim;
    float scaled[kMaxHeadDim];
    for (int i = 0; i < head_dim; i += kLanes) store(scaled + i, mul(load(from + i), scale));
    Products::pack_query(scaled, r % kBlockRows, head_dim,
                         q + r / kBlockRows * query_block_floats(head_dim));
  }
}

template <class Products>
void attend(const AttentionTask& task) {
  const int rows = task.num_positions * task.num_heads;
  const int head_dim = task.cache->head_dim;
  float* q = task.scratch;
  float* scores = q + static_cast<int64_t>(kMaxTaskRows) * (head_dim + 2);
  float* partials = scores + kMaxTaskRows * kTileTokens;
  pack_queries<Products>(task, q);
  if (task.partials != nullptr) {
    for (int64_t split = task.first_split; split < task.end_split; ++split) {
      float* to = task.partials + (split - task.first_split) * partial_floats(head_dim, rows);
      attend_split<Products>(task, split, q, scores, partial_at(to, head_dim, rows));
    }
    return;
  }
  const Partial whole = partial_at(partials, head_dim, rows);
  const Partial part = partial_at(partials + partial_floats(head_dim, rows), head_dim, rows);
  attend_split<Products>(task, task.first_split, q, scores, whole);
  for (int64_t split = task.first_split + 1; split < task.end_split; ++split) {
    attend_split<Products>(task, split, q, scores, part);
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

#if defined(HEADRACE_HAS_BF16_DOT)
using ProductsBF16 = PairProducts<DotBF16>;
#else
using ProductsBF16 = FloatProducts<KvBF16>;
#endif

extern const AttentionKernels kAttentionKernels;
const AttentionKernels kAttentionKernels = {
    {write_kv_f32, attend<FloatProducts<KvF32>>}, {write_kv_bf16, attend<ProductsBF16>},
    {write_kv_f16, attend<FloatProducts<KvF16>>}, {write_kv_i8, attend<PairProducts<DotI8>>},
    {write_kv_u4, attend<PairProducts<DotU4>>},   merge};

}  // namespace headrace::HEADRACE_ISA
