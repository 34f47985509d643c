#include "backend/cpu/kernels/attention_float.h"
#include "backend/cpu/kernels/attention_pairs.h"
#include "backend/cpu/kernels/attention_softmax.h"

// Compiled once per ISA. kernels_attention.h states the order of every sum.

namespace headrace::HEADRACE_ISA {

void write_kv_f32(const KvWriteTask& task);
void write_kv_bf16(const KvWriteTask& task);
void write_kv_f16(const KvWriteTask& task);
void write_kv_i8(const KvWriteTask& task);
void write_kv_f8(const KvWriteTask& task);
void write_kv_u4(const KvWriteTask& task);
void rotate_queries(const KvWriteTask& task);
void write_latent_f32(const LatentTask& task);
void write_latent_bf16(const LatentTask& task);
void write_latent_f16(const LatentTask& task);

namespace {

int clamp_to_tile(int64_t x) {
  return x < 0 ? 0 : x > kTileTokens ? kTileTokens : static_cast<int>(x);
}

Visible visible_lanes(const AttentionTask& task, int row, int64_t tile_start) {
  const int64_t position = static_cast<int64_t>(task.first_position) + row / task.num_heads;
  const int64_t first = task.window > 0 ? position - task.window + 1 : 0;
  const int64_t causal_end = task.seen > position ? task.seen : position + 1;
  int64_t end = task.causal ? causal_end : task.end_position;
  if (!task.causal && task.window > 0 && position + task.window < end) end = position + task.window;
  return {clamp_to_tile(first - tile_start), clamp_to_tile(end - tile_start)};
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
                  const Running& running) {
  const BlockView view = view_of(visible, Rows, Products::kValueStep);
  if (view.any.first >= view.any.end) return;
  const int head_dim = tile.head_dim;
  const int first = view.any.first / kKvLanes * kKvLanes;
  const int end = (view.any.end + kKvLanes - 1) / kKvLanes * kKvLanes;
  score_keys<Products, Rows>(tile, q, first, end, scores);
  if (tile.cap > 0.0f) cap_scores(scores, Rows, first, end, tile.cap);
  typename Products::Weights weights;
  update_softmax(scores, visible, Rows, running, head_dim);
  for (int r = 0; r < Rows; ++r) {
    Products::weigh(tile, scores + r * kTileTokens, visible[r], r, weights);
  }
  if constexpr (Products::kMasksValues) {
    add_seen_values<Products, Rows>(tile, weights, visible, view.common, running.sums);
  } else {
    constexpr int kStep = Products::kValueStep;
    add_values<Products, Rows>(tile, weights, view.any.first / kStep * kStep,
                               (view.any.end + kStep - 1) / kStep * kStep, running.sums);
  }
}

template <class Products, int Rows>
void attend_rows(int rows, const Tile& tile, const float* q, const Visible* visible, float* scores,
                 const Running& running) {
  if (rows == Rows) {
    attend_block<Products, Rows>(tile, q, visible, scores, running);
  } else if constexpr (Rows > 1) {
    attend_rows<Products, Rows - 1>(rows, tile, q, visible, scores, running);
  }
}

/// A group of 16 tokens in the sequence's blocks. Steps, because divisions take their time.
class GroupCursor {
 public:
  GroupCursor(const KvLayerView& cache, const int32_t* blocks, int64_t position)
      : cache_(cache),
        block_(blocks + position / cache.block_size),
        group_(static_cast<int>(position % cache.block_size) / kKvLanes) {}

  uint8_t* keys(int kv_head) const { return key_group(cache_, *block_, kv_head, group_); }
  uint8_t* scales(int kv_head) const { return key_scales(cache_, *block_, kv_head, group_); }
  void advance() {
    if ((++group_) * kKvLanes < cache_.block_size) return;
    group_ = 0;
    ++block_;
  }

 private:
  const KvLayerView& cache_;
  const int32_t* block_;
  int group_;
};

/// What a KV head has of the tile at `start` in groups that hold positions in [first, end), and
/// what is read next: the next head's keys, behind the last head the next tile's. Tasks of the same
/// sequence follow each other: a split's end is no end.
Tile locate(const AttentionTask& task, int kv_head, int64_t start, int64_t first, int64_t end) {
  const KvLayerView& cache = *task.cache;
  const bool last = kv_head + 1 == task.kv_head + task.num_kv_heads;
  Tile tile{};
  tile.head_dim = cache.head_dim;
  tile.cap = task.soft_cap * kLog2E;
  GroupCursor group(cache, task.blocks, start);
  for (int g = 0; g < kTileGroups; ++g, group.advance()) {
    const int64_t position = start + g * kKvLanes;
    if (position >= end) return tile;
    if (position + kKvLanes <= first) continue;
    tile.keys[g] = group.keys(kv_head);
    tile.values[g] = tile.keys[g] + cache.value_offset;
    tile.next_keys[g] = last ? tile.keys[g] : group.keys(kv_head + 1);
    tile.key_scales[g] = group.scales(kv_head);
    tile.value_scales[g] = tile.key_scales[g] + cache.value_scale_offset;
  }
  for (int g = 0; last && g < kTileGroups && start + kTileTokens + g * kKvLanes < end; ++g) {
    if (tile.keys[g] != nullptr) tile.next_keys[g] = group.keys(task.kv_head);
    group.advance();
  }
  return tile;
}

/// A task's rows fall into KV heads, and those of one into register blocks.
struct RowBlocks {
  int head_rows;    ///< of a KV head
  int head_blocks;  ///< that they take

  explicit RowBlocks(const AttentionTask& task)
      : head_rows(task.num_positions * task.num_heads / task.num_kv_heads),
        head_blocks((head_rows + kBlockRows - 1) / kBlockRows) {}

  /// Where the block of a row begins.
  float* find(float* q, int row, int head_dim) const {
    const int block = row / head_rows * head_blocks + row % head_rows / kBlockRows;
    return q + block * query_block_floats(head_dim);
  }
};

/// A tile of one KV head, whose first row is `row`.
template <class Products>
void attend_head(const RowBlocks& blocks, const Tile& tile, const Visible* visible, int row,
                 float* q, float* scores, const Running& running) {
  const int end = row + blocks.head_rows, head_dim = tile.head_dim;
  for (; row < end; row += kBlockRows) {
    attend_rows<Products, kBlockRows>(
        end - row < kBlockRows ? end - row : kBlockRows, tile, blocks.find(q, row, head_dim),
        visible + row, scores,
        {running.sums + static_cast<int64_t>(row) * head_dim, running.references + row,
         running.lane_totals + row * kLanes});
  }
}

/// Scratch of a task.
struct Scratch {
  float* q;
  float* scores;
  float* values;  ///< of a tile of latent rows
};

/// The tile's keys are its values, too: lays them out as such.
template <class Products>
void turn_keys(Tile& tile, float* values) {
  auto* to = reinterpret_cast<uint8_t*>(values);
  for (int g = 0; g < kTileGroups; ++g) {
    if (tile.keys[g] == nullptr) continue;
    Products::turn_keys(tile.keys[g], tile.head_dim, to);
    tile.values[g] = to;
    to += kKvLanes * tile.head_dim * sizeof(float);
  }
}

/// The part of one split that the task's rows see.
template <class Products>
void attend_split(const AttentionTask& task, int64_t split, const Scratch& scratch,
                  const Partial& partial) {
  const int rows = task.num_positions * task.num_heads;
  const RowBlocks blocks(task);
  const int64_t first_key = task.window > 0 && task.first_position >= task.window
                                ? static_cast<int64_t>(task.first_position) - task.window + 1
                                : 0;
  const int64_t split_start = split * kSplitTokens;
  const int64_t split_end = split_start + kSplitTokens;
  alignas(64) float lane_totals[kMaxTaskRows * kLanes];
  const Running running{partial.sums, partial.references, lane_totals};
  clear(running, task.cache->head_dim, rows);
  int64_t start = first_key > split_start ? first_key / kTileTokens * kTileTokens : split_start;
  for (; start < split_end && start < task.end_position; start += kTileTokens) {
    Visible visible[kMaxTaskRows];
    for (int r = 0; r < rows; ++r) visible[r] = visible_lanes(task, r, start);
    for (int head = 0; head < task.num_kv_heads; ++head) {
      Tile tile = locate(task, task.kv_head + head, start, first_key, task.end_position);
      if constexpr (Products::kTurnsKeys) {
        if (task.cache->latent) turn_keys<Products>(tile, scratch.values);
      }
      attend_head<Products>(blocks, tile, visible, head * blocks.head_rows, scratch.q,
                            scratch.scores, running);
    }
  }
  for (int r = 0; r < rows; ++r) {
    partial.totals[r] = reduce_add(load(lane_totals + r * kLanes));
  }
}

/// Scales the queries and lays them out by register blocks.
template <class Products>
void pack_queries(const AttentionTask& task, float* q) {
  const int head_dim = task.cache->head_dim;
  const RowBlocks blocks(task);
  const F32 scale = set1(task.scale * kLog2E);
  for (int r = 0; r < task.num_positions * task.num_heads; ++r) {
    const float* from = task.queries + r / task.num_heads * task.query_stride +
                        static_cast<int64_t>(r % task.num_heads) * head_dim;
    float scaled[kMaxLatent];
    for (int i = 0; i < head_dim; i += kLanes) store(scaled + i, mul(load(from + i), scale));
    Products::pack_query(scaled, r % blocks.head_rows % kBlockRows, head_dim,
                         blocks.find(q, r, head_dim));
  }
}

template <class Products>
void attend(const AttentionTask& task) {
  const int rows = task.num_positions * task.num_heads;
  const int head_dim = task.cache->head_dim;
  float* const scores = task.scratch + query_floats(head_dim);
  float* const partials = scores + kMaxTaskRows * kTileTokens;
  const Scratch scratch{task.scratch, scores,
                        partials + 2 * partial_floats(head_dim, kMaxTaskRows)};
  pack_queries<Products>(task, scratch.q);
  if (task.partials != nullptr) {
    for (int64_t split = task.first_split; split < task.end_split; ++split) {
      float* to = task.partials + (split - task.first_split) * partial_floats(head_dim, rows);
      attend_split<Products>(task, split, scratch, partial_at(to, head_dim, rows));
    }
    return;
  }
  const Partial whole = partial_at(partials, head_dim, rows);
  const Partial part = partial_at(partials + partial_floats(head_dim, rows), head_dim, rows);
  attend_split<Products>(task, task.first_split, scratch, whole);
  for (int64_t split = task.first_split + 1; split < task.end_split; ++split) {
    attend_split<Products>(task, split, scratch, part);
    merge_partial(whole, part, head_dim, rows);
  }
  write_output(whole, head_dim, task.num_positions, task.num_heads, task.sinks, task.out,
               task.out_stride);
}

/// Of a partial result, what belongs to the rows from `row` on.
Partial rows_from(const Partial& partial, int row, int head_dim) {
  return {partial.sums + static_cast<int64_t>(row) * head_dim, partial.references + row,
          partial.totals + row};
}

void merge(const MergeTask& task) {
  const int rows = task.num_positions * task.num_heads, d = task.head_dim;
  const auto partial = [&](int split) {
    float* data = task.partials + split * partial_floats(d, task.partial_rows);
    return rows_from(partial_at(data, d, task.partial_rows), task.first_row, d);
  };
  const Partial whole = partial(0);
  for (int i = 1; i < task.num_splits; ++i) merge_partial(whole, partial(i), d, rows);
  write_output(whole, d, task.num_positions, task.num_heads, task.sinks, task.out, task.out_stride);
}

}  // namespace

#if defined(HEADRACE_HAS_BF16_DOT)
using ProductsBF16 = PairProducts<DotBF16>;
#else
using ProductsBF16 = FloatProducts<KvBF16>;
#endif

extern const AttentionKernels kAttentionKernels;
const AttentionKernels kAttentionKernels = {
    {write_kv_f32, write_latent_f32, attend<FloatProducts<KvF32>>},
    {write_kv_bf16, write_latent_bf16, attend<ProductsBF16>},
    {write_kv_f16, write_latent_f16, attend<FloatProducts<KvF16>>},
    {write_kv_i8, nullptr, attend<PairProducts<DotI8>>},
    {write_kv_f8, nullptr, attend<Float8Products>},
    {write_kv_u4, nullptr, attend<PairProducts<DotU4>>},
    rotate_queries,
    merge};

}  // namespace headrace::HEADRACE_ISA
