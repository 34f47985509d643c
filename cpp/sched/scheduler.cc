#include "sched/scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "sched/planner.h"
#include "sched/state.h"

namespace headrace {

struct Scheduler::Impl : SchedulerState {
  using SchedulerState::SchedulerState;
  SeqId last_id = 0;

  Sequence& get(SeqId id) const {
    const auto found = sequences.find(id);
    HEADRACE_CHECK(found != sequences.end(), "no sequence ", id);
    return *found->second;
  }
  void check_sampled(std::span<const int32_t> sampled, std::span<const int32_t> counts);
  CommittedSeq settle(PlannedRows& planned, std::span<const int32_t> sampled);
  void settle_states(Sequence& seq, PlannedRows& planned, int32_t start);
  void choose_live(Sequence& seq, PlannedRows& planned, int32_t start);
  void publish_state(Sequence& seq, int32_t position, int32_t slot);
  void publish_full_columns(Sequence& seq);
};

namespace {

/// Positions and a block more stay within int32.
constexpr int32_t kMaxPositions = 1 << 30;

const SchedulerConfig& checked(const SchedulerConfig& config) {
  HEADRACE_CHECK(config.max_num_seqs > 0, config.max_num_seqs);
  HEADRACE_CHECK(config.max_num_batched_tokens >= config.max_num_seqs,
                 config.max_num_batched_tokens);
  HEADRACE_CHECK(config.max_prefill_chunk >= 0, config.max_prefill_chunk);
  HEADRACE_CHECK(
      config.most_item_rows >= 0 &&
          config.most_item_rows <= config.max_num_batched_tokens - (config.max_num_seqs - 1),
      config.most_item_rows);
  HEADRACE_CHECK(config.block_size > 0 && config.num_blocks > 0, config.num_blocks, " x ",
                 config.block_size);
  HEADRACE_CHECK(config.num_host_blocks >= 0, config.num_host_blocks);
  HEADRACE_CHECK(!config.windows.empty());
  HEADRACE_CHECK(config.num_state_slots == 0 || config.num_state_slots >= config.max_num_seqs,
                 config.num_state_slots, " state slots");
  HEADRACE_CHECK(config.num_host_state_slots >= 0, config.num_host_state_slots);
  HEADRACE_CHECK(config.num_state_slots == 0 || (config.snapshot_interval > 0 &&
                                                 config.snapshot_interval % config.block_size == 0),
                 config.snapshot_interval);
  HEADRACE_CHECK(config.max_model_len > 0 && config.max_model_len <= kMaxPositions &&
                     config.block_size <= kMaxPositions,
                 config.max_model_len);
  return config;
}

}  // namespace

KvGroups kv_groups(const SchedulerConfig& config) {
  const int32_t chunk = config.max_prefill_chunk;
  const int32_t rows = config.max_num_batched_tokens;
  const int32_t most = chunk > 0 ? std::min(chunk, rows) : rows;
  return {config.block_size, config.windows, std::max(most, config.most_item_rows)};
}

Scheduler::Scheduler(const SchedulerConfig& config)
    : impl_(std::make_unique<Impl>(checked(config))) {}

Scheduler::~Scheduler() = default;

bool Scheduler::fits(int64_t prompt_tokens, int64_t max_tokens) const {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return prompt_tokens >= 1 && prompt_tokens <= kMost && max_tokens >= 0 && max_tokens <= kMost &&
         impl_->blocks.groups().most_blocks(prompt_tokens + std::max<int64_t>(max_tokens, 1) - 1) <=
             impl_->config.num_blocks;
}

bool Scheduler::fits_step(int64_t prompt_tokens) const {
  const SchedulerConfig& config = impl_->config;
  return prompt_tokens <= config.max_num_batched_tokens &&
         (config.max_prefill_chunk == 0 || prompt_tokens <= config.max_prefill_chunk);
}

bool Scheduler::fits_item(int64_t rows) const { return rows <= impl_->config.most_item_rows; }

SeqId Scheduler::add(SeqSpec spec) {
  const auto prompt_tokens = static_cast<int64_t>(spec.prompt.size());
  HEADRACE_CHECK(prompt_tokens >= 1 && spec.max_tokens >= 0, prompt_tokens, " + ", spec.max_tokens);
  HEADRACE_CHECK(!spec.one_step ||
                     (spec.max_tokens == 0 && !spec.read_prefix_cache && fits_step(prompt_tokens)),
                 prompt_tokens);
  HEADRACE_CHECK(prompt_tokens + spec.max_tokens <= impl_->config.max_model_len, prompt_tokens,
                 " + ", spec.max_tokens);
  HEADRACE_CHECK(fits(prompt_tokens, spec.max_tokens), prompt_tokens, " + ", spec.max_tokens);
  HEADRACE_CHECK(!std::isnan(spec.deadline));
  HEADRACE_CHECK(spec.identity.fits(spec.prompt.size()));
  if (spec.whole_items && spec.identity.media != nullptr) {
    for (const MediaItem& item : *spec.identity.media) {
      HEADRACE_CHECK(fits_item(item.last - item.first), item.last - item.first);
    }
  }
  HEADRACE_CHECK(std::ranges::is_sorted(spec.end_tokens));
  HEADRACE_CHECK(std::ranges::none_of(spec.stop_sequences, &std::vector<int32_t>::empty));
  const SeqId id = ++impl_->last_id;
  auto owner =
      std::make_unique<Sequence>(id, std::move(spec), impl_->blocks.groups(), impl_->config);
  Sequence& seq = *owner;
  impl_->sequences.emplace(id, std::move(owner));
  try {
    impl_->waiting.insert(&seq);
    if (seq.spec.deadline != 0) impl_->deadlines.emplace(seq.spec.deadline, id);
  } catch (...) {
    impl_->remove(seq);
    throw;
  }
  return id;
}

bool Scheduler::cancel(SeqId id) {
  const auto found = impl_->sequences.find(id);
  if (found == impl_->sequences.end()) return false;
  impl_->remove(*found->second);
  return true;
}

StepPlan Scheduler::plan(double now) {
  HEADRACE_CHECK(impl_->pending.empty(), "the last plan is still pending");
  return Planner(*impl_, false).make(now);
}

StepPlan Scheduler::plan_ahead(double now) {
  HEADRACE_CHECK(!impl_->pending.empty() && impl_->ahead.empty(), impl_->ahead.size());
  return Planner(*impl_, true).make(now);
}

void Scheduler::wish_drafts(SeqId id, int32_t count) {
  HEADRACE_CHECK(count >= 0, count);
  impl_->get(id).wished_drafts = count;
}

void Scheduler::set_ready(SeqId id, int32_t position) { impl_->get(id).ready_until = position; }

void Scheduler::postpone(SeqId id) {
  Sequence& seq = impl_->get(id);
  const auto planned = std::ranges::find(impl_->pending, id, &PlannedRows::id);
  HEADRACE_CHECK(impl_->ahead.empty() && planned != impl_->pending.end() && planned->samples &&
                     planned->drafts == 0 && !planned->postponed && !seq.has_state,
                 "sequence ", id, " can't be postponed");
  planned->postponed = seq.postponed = true;
  --planned->rows;
  --seq.in_flight;
  --seq.to_come;
}

void Scheduler::resume(SeqId id) { impl_->get(id).postponed = false; }

std::optional<int32_t> Scheduler::next_position(SeqId id) const {
  Sequence& seq = impl_->get(id);
  if (impl_->waiting.contains(&seq)) return std::nullopt;
  return seq.next_position();
}

// All memory first: what follows cannot fail half way.
void Scheduler::Impl::check_sampled(std::span<const int32_t> sampled,
                                    std::span<const int32_t> counts) {
  size_t samplers = 0, expected = 0;
  for (const PlannedRows& planned : pending) {
    const size_t most = static_cast<size_t>(planned.drafts) + 1;
    if (planned.samples) {
      const size_t count = samplers < counts.size() ? static_cast<size_t>(counts[samplers]) : 1;
      HEADRACE_CHECK(count >= 1 && count <= most, count, " tokens for sequence ", planned.id);
      ++samplers;
      expected += count;
    }
    if (planned.seq == nullptr) continue;
    std::vector<int32_t>& tokens = planned.seq->tokens;
    const size_t room = tokens.size() + most;
    if (room > tokens.capacity()) tokens.reserve(std::max(room, 2 * tokens.size()));
  }
  HEADRACE_CHECK(counts.empty() || counts.size() == samplers, counts.size());
  HEADRACE_CHECK(sampled.size() == expected, sampled.size(), " tokens for ", expected);
}

std::vector<CommittedSeq> Scheduler::commit(std::span<const int32_t> sampled,
                                            std::span<const int32_t> counts) {
  HEADRACE_CHECK(!impl_->pending.empty(), "nothing is planned");
  impl_->check_sampled(sampled, counts);
  std::vector<CommittedSeq> out;
  out.reserve(impl_->pending.size());
  impl_->pending_copies = std::exchange(impl_->ahead_copies, false);
  std::vector<PlannedRows> plan = std::exchange(impl_->pending, std::exchange(impl_->ahead, {}));
  for (PlannedRows& planned : plan) {
    size_t count = 0;
    if (planned.samples) {
      count = counts.empty() ? 1 : static_cast<size_t>(counts.front());
      if (!counts.empty()) counts = counts.subspan(1);
    }
    out.push_back(impl_->settle(planned, sampled.first(count)));
    sampled = sampled.subspan(count);
  }
  return out;
}

/// The planned rows are computed, and so are the guesses before the last of `sampled`.
CommittedSeq Scheduler::Impl::settle(PlannedRows& planned, std::span<const int32_t> sampled) {
  CommittedSeq out;
  out.id = planned.id;
  if (planned.seq == nullptr) {
    out.end = SeqEnd::kCancelled;
    return out;
  }
  Sequence& seq = *planned.seq;
  const int32_t start = seq.computed;
  seq.computed += planned.rows;
  seq.in_flight -= planned.rows;
  if (planned.postponed) sampled = {};
  if (planned.samples && !planned.postponed) --seq.to_come;
  for (const int32_t token : sampled) {
    if (out.end != SeqEnd::kNone) break;
    if (out.num_tokens++ > 0) ++seq.computed;
    seq.tokens.push_back(token);
    out.token = token;
    const Sequence::Ending ending = seq.end_after_last_token();
    out.end = ending.end;
    out.stop_sequence = ending.stop_sequence;
  }
  if (!seq.generates() && seq.computed == seq.num_prompt) out.end = SeqEnd::kPrompt;
  publish_full_columns(seq);
  settle_states(seq, planned, start);
  blocks.give_back(seq.blocks, seq.computed, seq.published - 1);
  if (out.end != SeqEnd::kNone) remove(seq);
  return out;
}

void Scheduler::Impl::publish_full_columns(Sequence& seq) {
  const auto size = static_cast<size_t>(seq.block_size);
  for (; seq.published < seq.computed / seq.block_size; ++seq.published) {
    const auto index = static_cast<size_t>(seq.published);
    blocks.publish(seq.spec.identity, seq.blocks, index,
                   std::span<const int32_t>(seq.tokens).subspan(index * size, size));
  }
}

namespace {

/// Whether the state behind `position` is to be kept.
bool is_snapshot(const Sequence& seq, int32_t position) {
  return position <= seq.computed && seq.last_snapshot(position) == position;
}

}  // namespace

/// What has been saved behind rows from `start` on, and is to be kept, becomes findable.
void Scheduler::Impl::settle_states(Sequence& seq, PlannedRows& planned, int32_t start) {
  if (seq.has_state && planned.drafts > 0) choose_live(seq, planned, start);
  for (const auto& [row, slot] : std::exchange(planned.saves, {})) {
    const int32_t position = start + row + 1;
    if (is_snapshot(seq, position)) {
      publish_state(seq, position, slot);
    } else {
      blocks.states().release(slot);
    }
  }
}

/// After guesses, one of the plan's slots has the state behind the last computed row: it becomes
/// the sequence's own. If its state is to be kept, another one does, and the next rows begin with
/// that state.
void Scheduler::Impl::choose_live(Sequence& seq, PlannedRows& planned, int32_t start) {
  std::vector<StateSave>& saves = planned.saves;
  saves.push_back({planned.drafts, seq.live});
  auto own = saves.begin() + (seq.computed - start - 1);
  if (is_snapshot(seq, seq.computed)) {
    const auto other = std::ranges::find_if(
        saves, [&](const StateSave& save) { return !is_snapshot(seq, start + save.row + 1); });
    if (other != saves.end()) {
      seq.source = own->slot;
      blocks.states().retain(seq.source);
      own = other;
    }
  }
  seq.live = own->slot;
  saves.erase(own);
}

/// Releases the slot. Of its snapshots behind its prompt a sequence keeps the last alone.
void Scheduler::Impl::publish_state(Sequence& seq, int32_t position, int32_t slot) {
  const auto index = static_cast<size_t>(position / seq.block_size - 1);
  const bool is_new = blocks.publish_state(seq.blocks, index, slot, position == seq.branch);
  if (is_new && position % seq.snapshot_interval == 0 &&
      position - seq.snapshot_interval > seq.num_prompt) {
    blocks.drop_state(seq.blocks, index, seq.snapshot_interval / seq.block_size);
  }
}

std::vector<SeqId> Scheduler::abandon_step() {
  HEADRACE_CHECK(!impl_->pending.empty(), "nothing is planned");
  std::vector<SeqId> ended;
  ended.reserve(impl_->pending.size() + impl_->ahead.size());
  const bool had_copies = impl_->pending_copies || impl_->ahead_copies;
  impl_->pending_copies = impl_->ahead_copies = false;
  for (size_t i = impl_->running.size(); had_copies && i-- > 0;) {
    if (impl_->running[i]->in_flight == 0) impl_->preempt(*impl_->running[i]);
  }
  for (auto* plan : {&impl_->pending, &impl_->ahead}) {
    for (PlannedRows& planned : *plan) {
      if (std::ranges::count(ended, planned.id) == 0) ended.push_back(planned.id);
      impl_->drop_saves(planned);
    }
    plan->clear();
  }
  for (const SeqId id : ended) cancel(id);
  if (had_copies) impl_->blocks.clear_cache();
  return ended;
}

bool Scheduler::has_work() const { return !impl_->sequences.empty(); }

int32_t Scheduler::cached_prompt_tokens(SeqId id) const {
  return impl_->get(id).cached_prompt_tokens;
}

int32_t Scheduler::host_prompt_tokens(SeqId id) const { return impl_->get(id).host_prompt_tokens; }

int32_t Scheduler::rope_len(SeqId id, int32_t position) const {
  return std::max(impl_->get(id).num_prompt, position + 1);
}

SchedulerStats Scheduler::stats() const {
  const BlockPool& pool = impl_->blocks.pool();
  SchedulerStats out;
  out.waiting = static_cast<int32_t>(impl_->waiting.size());
  out.running = static_cast<int32_t>(impl_->running.size());
  out.total_blocks = pool.num_blocks();
  out.free_blocks = impl_->blocks.available();
  out.cached_blocks = pool.num_cached();
  out.prefix_hit_tokens = impl_->prefix_hit_tokens;
  out.prefix_miss_tokens = impl_->prefix_miss_tokens;
  out.cached_host_blocks = impl_->blocks.host_pool().num_cached();
  out.prefix_host_hit_tokens = impl_->prefix_host_hit_tokens;
  out.moved_to_host = impl_->blocks.moved_to_host();
  out.moved_from_host = impl_->blocks.moved_from_host();
  out.prefix_found_tokens = impl_->prefix_found_tokens;
  const StateSlots& slots = impl_->blocks.states();
  out.state_slots = slots.num_slots();
  out.free_state_slots = slots.num_free();
  out.snapshots = slots.num_snapshots();
  out.host_snapshots = slots.num_host_snapshots();
  out.snapshots_written = slots.written();
  out.snapshots_evicted = slots.evicted();
  out.snapshots_restored = slots.restored();
  out.preemptions = impl_->preemptions;
  out.interruptions = impl_->interruptions;
  return out;
}

void Scheduler::clear_prefix_cache() { impl_->blocks.clear_cache(); }

}  // namespace headrace
