#include <algorithm>
#include <array>
#include <type_traits>

#include "backend/checks/op_checks_state.h"
#include "base/check.h"
#include "base/checked_math.h"
#include "cuda/host/cuda_backend.h"
#include "cuda/host/memory/device_kv_cache.h"

namespace headrace::cuda {

namespace {

/// Steps of single tokens, each of which is sampled from: what is recorded.
bool is_decode(const StepBatch& batch) {
  return batch.logit_rows.size() == batch.token_ids.size() && batch.modalities.empty() &&
         batch.given.empty() &&
         std::all_of(batch.seqs.begin(), batch.seqs.end(), [](const SeqSlice& seq) {
           return seq.num_rows == 1 && seq.adapter == kNoAdapter;
         });
}

int64_t longest_table(const StepBatch& batch, int32_t block_size) {
  int64_t blocks = 1;
  for (const SeqSlice& seq : batch.seqs) {
    blocks = std::max(blocks, ceil_div<int64_t>(keys_end(seq), block_size));
  }
  return blocks;
}

// Of all partial results: 64 sequences of 8k tokens with 8 KV heads of 128 fill it.
constexpr size_t kMaxPartialBytes = size_t{144} << 20;

int64_t power_of_two(int64_t least) {
  int64_t out = 1;
  while (out < least) out *= 2;
  return out;
}

}  // namespace

void CudaBackend::begin_step(const StepBatch& batch) {
  const auto rows = static_cast<int64_t>(batch.token_ids.size());
  HEADRACE_CHECK(batch.positions.size() == batch.token_ids.size() &&
                     batch.rope_lens.size() == batch.token_ids.size(),
                 rows);
  // Another rank than the first has not drawn itself.
  const size_t num_drawn = rank_ != nullptr && rank_->rank() > 0 ? kMostDrawn : num_drawn_;
  for (const int32_t drawn : batch.drawn) {
    HEADRACE_CHECK(drawn < 0 || static_cast<size_t>(drawn) < num_drawn, drawn, " of ", num_drawn);
  }
  HEADRACE_CHECK(batch.drawn.empty() || batch.drawn.size() == batch.token_ids.size(),
                 batch.drawn.size());
  HEADRACE_CHECK(
      batch.rope_positions.empty() || batch.rope_positions.size() == 3 * batch.token_ids.size(),
      batch.rope_positions.size());
  // What only takes memory may use a slot for many slices.
  if (!reserving_) check_batch_states(batch);
  context_.enter();
  if (rank_ != nullptr) rank_->expect_anew();
  context_.settle();  // or a failed step's copies would read what this one writes
  uploader_.release();
  grow(drawn_, kMostDrawn * sizeof(int32_t));
  num_drawn_ = 0;
  if (swaps_ != nullptr) swaps_->begin_step();
  step_ = {.batch = batch, .rows = rows};
  expected_.reset();
  rounded_ahead_ = {};

  if (batch.cache != nullptr && !batch.seqs.empty()) {
    step_.recorded =
        record_steps_ && rows <= batch.room && rows <= kMaxRecordedRows && is_decode(batch);
    if (step_.recorded) step_.rows = StepGraphs::bucket(rows, batch.room);
    step_.table_stride = longest_table(batch, batch.cache->block_size());
    if (step_.recorded) step_.table_stride = power_of_two(step_.table_stride);
  }
  arena_.begin();
  step_generation_ = arena_.generation();
  queue_rows();
  queue_draws();
  tables_.clear();
  if (step_.table_stride > 0) {
    for (int32_t i = 0; i < batch.cache->layout().num_groups(); ++i) queue_tables(i);
    if (batch.cache->layout().has_states()) queue_states();
    for (PlannedAttention& planned : attentions_) queue_plan(planned);
  }
  arena_.flush();
}

void CudaBackend::queue_rows() {
  const auto queue = [this](std::span<const int32_t> from, int32_t padding) {
    host_i32_.assign(from.begin(), from.end());
    host_i32_.resize(static_cast<size_t>(step_.rows), padding);
    return arena_.put<int32_t>(host_i32_);
  };
  step_.token_ids = queue(step_.batch.token_ids, 0);
  const std::array<int32_t, 1> used = {static_cast<int32_t>(step_.batch.token_ids.size())};
  step_.used_rows = arena_.put<int32_t>(used);
  step_.drawn_by = queue(step_.batch.drawn, -1);
  step_.positions = queue(step_.batch.positions, 0);
  step_.rope_lens = queue(step_.batch.rope_lens, 1);
  if (!step_.batch.rope_positions.empty()) queue_axis_positions();
}

/// [3][rows], with padding behind each axis.
void CudaBackend::queue_axis_positions() {
  const std::span<const int32_t> from = step_.batch.rope_positions;
  const size_t rows = from.size() / 3, all = static_cast<size_t>(step_.rows);
  host_i32_.assign(3 * all, 0);
  for (size_t axis = 0; axis < 3; ++axis) {
    std::ranges::copy(from.subspan(axis * rows, rows),
                      host_i32_.begin() + static_cast<std::ptrdiff_t>(axis * all));
  }
  step_.axis_positions = arena_.put<int32_t>(host_i32_);
}

// Padding rows write into the spare block and are in no sequence.
void CudaBackend::queue_tables(int32_t group) {
  const DeviceKvCache& cache = device_cache(*step_.batch.cache);
  const int32_t size = cache.block_size();
  const bool slides = cache.layout().groups[static_cast<size_t>(group)].rows.window > 0;
  const auto stride = static_cast<size_t>(step_.table_stride);
  host_i64_.assign(static_cast<size_t>(step_.rows), cache.spare_slot());
  host_i32_.assign(std::max(step_.batch.seqs.size(), size_t{1}) * stride, 0);
  size_t table = 0;
  for (const SeqSlice& seq : step_.batch.seqs) {
    HEADRACE_CHECK(seq.blocks.has(group), group, " of ", seq.blocks.num_tables());
    const std::span<const int32_t> blocks = seq.blocks[group];
    const int64_t end = keys_end(seq);
    const auto used = static_cast<size_t>(ceil_div<int64_t>(end, size));
    HEADRACE_CHECK(seq.start_pos >= 0 && used <= blocks.size(), end, " tokens in ", blocks.size(),
                   " blocks of ", size);
    for (size_t i = 0; i < used; ++i) {
      const int32_t block = blocks[i];
      if (slides && block == kNoBlock) continue;  // no row sees it
      HEADRACE_CHECK(block >= 0 && block < cache.num_blocks(), block);
      host_i32_[table + i] = block;
      if (swaps_ != nullptr) swaps_->note_use(block);
    }
    for (int32_t i = 0; i < seq.num_rows; ++i) {
      const int64_t position = int64_t{seq.start_pos} + i;
      host_i64_[static_cast<size_t>(seq.first_row + i)] =
          int64_t{blocks[static_cast<size_t>(position / size)]} * size + position % size;
    }
    table += stride;
  }
  const int64_t* const slots = arena_.put<int64_t>(host_i64_);
  const size_t capacity = step_.recorded ? static_cast<size_t>(step_.rows) * stride : 0;
  tables_.push_back({slots, arena_.put<int32_t>(host_i32_, capacity)});
}

// In a recorded step the lists lie, and blocks are launched, as the largest step of its kind needs.
void CudaBackend::queue_plan(PlannedAttention& planned) {
  const auto max_partials =
      static_cast<int64_t>(kMaxPartialBytes / attention_partial_bytes(1, planned.shape));
  plan_attention(step_.batch.seqs, planned.shape, max_partials, &planned.plan);
  const AttentionPlan& plan = planned.plan;
  size_t splits = 0, longs = 0;
  int64_t partials = plan.num_partials;
  if (step_.recorded) {
    const int64_t tokens = step_.table_stride * step_.batch.cache->block_size();
    const int64_t each = ceil_div<int64_t>(tokens, kSplitKeys);
    partials = each > 1 ? std::min(step_.rows * each, max_partials) : 0;
    // Sequences of one split need none.
    splits = static_cast<size_t>(step_.rows + partials);
    longs = step_.rows * each > max_partials ? static_cast<size_t>(step_.rows) : 0;
  }
  const std::array<int32_t, 2> counts = {static_cast<int32_t>(plan.short_items.size()),
                                         static_cast<int32_t>(plan.long_items.size())};
  const int32_t* const device_counts = arena_.put<int32_t>(counts);
  const auto list = [&](const auto& items, size_t capacity, const int32_t* count) {
    using Item = typename std::decay_t<decltype(items)>::value_type;
    WorkList<Item> out;
    out.items = arena_.put(std::span<const Item>(items), capacity);
    out.count = count;
    out.expected = static_cast<int32_t>(std::max(items.size(), capacity));
    return out;
  };
  planned.short_items = list(plan.short_items, splits, device_counts);
  planned.long_items = list(plan.long_items, longs, device_counts + 1);
  grow(attention_partials_, attention_partial_bytes(partials, planned.shape));
  const auto sequences = std::max(static_cast<int64_t>(step_.batch.seqs.size()), step_.rows);
  const size_t counters = attention_counter_bytes(sequences, planned.shape);
  if (counters > attention_counters_.bytes) {
    grow(attention_counters_, counters);
    context_.check(context_.api().fill_zero(attention_counters_.data, attention_counters_.bytes,
                                            context_.stream()),
                   "clearing counters");
  }
}

CudaBackend::PlannedAttention& CudaBackend::planned_attention(const AttentionShape& shape) {
  const auto same = [&](const PlannedAttention& planned) { return planned.shape == shape; };
  const auto found = std::find_if(attentions_.begin(), attentions_.end(), same);
  if (found != attentions_.end()) return *found;
  HEADRACE_CHECK(!graphs_.recording());
  attentions_.push_back({.shape = shape});
  queue_plan(attentions_.back());
  arena_.flush();
  return attentions_.back();
}

void CudaBackend::run_step(const void* model, const KvCache& cache,
                           const std::function<void()>& ops) {
  if (reserving_ || !step_.recorded) return ops();
  const auto agree = [this](RecordState own) { return rank_ == nullptr ? own : rank_->agree(own); };
  // Where the arena has moved within the step, the next step's inputs will lie elsewhere.
  if (step_generation_ != arena_.generation()) {
    agree(RecordState::kUnseen);
    return ops();
  }
  graphs_.run({model, &cache, step_.rows, step_.table_stride, step_.axis_positions != nullptr,
               step_.ends_with_draws, step_.spreads},
              arena_.generation() + workspace_generation_, ops, agree);
}

}  // namespace headrace::cuda
