#include "sched/planner.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"

namespace headrace {

namespace {

/// The n-th of a fixed sequence of random numbers (SplitMix64).
uint64_t mix(uint64_t n) {
  n = (n + 1) * 0x9e3779b97f4a7c15u;
  n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9u;
  n = (n ^ (n >> 27)) * 0x94d049bb133111ebu;
  return n ^ (n >> 31);
}

/// How many tokens two sequences of equal identity begin with that are equal, media included.
int32_t common_tokens(const Sequence& a, const Sequence& b) {
  const auto token = std::ranges::mismatch(a.tokens, b.tokens).in1;
  auto common = static_cast<int32_t>(token - a.tokens.begin());
  const auto media_of = [](const Sequence& s) {
    return s.spec.identity.media_in(0, s.tokens.size());
  };
  const std::span<const MediaItem> of_a = media_of(a), of_b = media_of(b);
  const auto [item_a, item_b] = std::ranges::mismatch(of_a, of_b);
  if (item_a != of_a.end()) common = std::min(common, item_a->first);
  if (item_b != of_b.end()) common = std::min(common, item_b->first);
  return common;
}

}  // namespace

Planner::Planner(SchedulerState& state, bool ahead)
    : state_(state), ahead_(ahead), rows_left_(state.config.max_num_batched_tokens) {}

StepPlan Planner::make(double now) {
  expire(now);
  if (ahead_) {
    gives_up_ = !may_go_ahead();
  } else if (interrupts()) {
    interrupt();
  }
  visit_all();
  if (gives_up_) {
    plan_ = {};
    planned_.clear();
  }
  grant_drafts();
  if (state_.blocks.has_states()) {
    for (PlannedRows& planned : planned_) save_snapshots(planned);
    show_states();
  }
  make_pending();
  return std::move(plan_);
}

/// Of a plan that has not become pending.
void Planner::drop_plan() {
  for (PlannedRows& planned : planned_) state_.drop_saves(planned);
}

void Planner::visit_all() {
  for (const Sequence* seq : state_.running) count_ahead(*seq, 1);
  while (!gives_up_) {
    Sequence* const candidate = next_to_admit();
    if (candidate != nullptr) {
      admission_open_ = admit(*candidate);
    } else if (visited_ < state_.running.size()) {
      schedule(*state_.running[visited_]);
      ++visited_;
    } else {
      break;
    }
  }
}

bool Planner::may_go_ahead() const {
  return std::ranges::all_of(state_.running, &Sequence::plans_ahead) &&
         std::ranges::all_of(state_.pending, [](const auto& p) { return p.drafts == 0; }) &&
         (!interrupts() || state_.blocks.available() >= lacking_blocks());
}

void Planner::expire(double now) {
  while (!state_.deadlines.empty() && state_.deadlines.begin()->first <= now) {
    const SeqId id = state_.deadlines.begin()->second;
    state_.expired.push_back(id);
    state_.remove(*state_.sequences.at(id));
  }
}

/// Ends running sequences until every decode, and the most senior one, can have a row.
void Planner::interrupt() {
  while (state_.blocks.available() < lacking_blocks()) {
    HEADRACE_CHECK(state_.running.size() > 1, "the last sequence has no room");
    Sequence& victim = choose_victim();
    state_.interrupted.push_back(victim.id);
    ++state_.interruptions;
    state_.remove(victim);
  }
}

int32_t Planner::lacking_blocks() const {
  int32_t lacking = 0;
  for (const Sequence* seq : state_.running) {
    const bool has_row = seq->decodes() || (seq == state_.running.front() && seq->remaining() > 0);
    if (has_row && !seq->rests()) lacking += seq->lacking_columns() * column_blocks();
  }
  return lacking;
}

Sequence& Planner::choose_victim() const {
  const std::vector<Sequence*>& running = state_.running;
  if (state_.config.out_of_blocks == OutOfBlocks::kInterruptRandom) {
    return *running[mix(state_.interruptions) % running.size()];
  }
  const auto shorter = [](const Sequence* a, const Sequence* b) {
    return a->num_tokens() < b->num_tokens();
  };
  return **std::max_element(running.rbegin(), running.rend(), shorter);
}

/// A running sequence comes to those not yet visited, or leaves them.
void Planner::count_ahead(const Sequence& seq, int32_t change) noexcept {
  if (!seq.decodes()) return;
  decodes_ahead_ += change;
  blocks_set_aside_ += change * seq.lacking_columns() * column_blocks();
}

/// The first waiting sequence if its turn has come: all its seniors have been visited, and none of
/// them has been sent back to wait by this plan, nor has it.
Sequence* Planner::next_to_admit() const {
  if (!admission_open_ || state_.waiting.empty()) return nullptr;
  Sequence* const first = *state_.waiting.begin();
  const bool has_turn =
      (visited_ == state_.running.size() || is_senior(*first, *state_.running[visited_])) &&
      (last_victim_ == nullptr || is_senior(*first, *last_victim_));
  return has_turn ? first : nullptr;
}

/// Moves a waiting sequence to running[visited_] if there is a row, a place and room for it.
bool Planner::admit(Sequence& seq) {
  auto& running = state_.running;
  while (static_cast<int32_t>(running.size()) >= state_.config.max_num_seqs) {
    if (!preempt_most_junior(visited_)) return false;
  }
  if (prefill_rows() < (seq.spec.one_step ? seq.num_prompt : 1)) return false;
  // At least one token is left to compute: its logits are what is wanted.
  const auto all_but_one = std::span<const int32_t>(seq.tokens).first(seq.tokens.size() - 1);
  const CacheIdentity& identity = seq.spec.identity;
  if (seq.reads_cache()) seq.blocks = state_.blocks.acquire_prefix(identity, all_but_one);
  int32_t restored = 0;
  try {
    const bool enters = !prefix_is_coming(seq) && make_room_for(seq);
    if (enters && ahead_ && !seq.plans_ahead()) gives_up_ = true;
    if (!enters || gives_up_) {
      state_.drop_blocks(seq);
      return false;
    }
    if (seq.reads_cache()) {
      restored = state_.blocks.restore_prefix(identity, all_but_one, seq.blocks);
    }
    if (seq.has_state) take_slots(seq);
    running.insert(running.begin() + static_cast<std::ptrdiff_t>(visited_), &seq);
  } catch (...) {
    state_.drop_all(seq);
    throw;
  }
  state_.waiting.erase(&seq);
  seq.published = seq.num_columns();
  seq.computed = seq.covered();
  count_ahead(seq, 1);
  if (seq.reads_cache() && !seq.scheduled_before && state_.blocks.prefix_caching()) {
    count_prefix(seq, restored);
  }
  return true;
}

/// For a newcomer that has its prefix. make_room_for() has seen to it that there is a slot.
void Planner::take_slots(Sequence& seq) {
  const auto [live, source] = state_.blocks.start_state(seq.blocks);
  HEADRACE_CHECK(live != StateSlots::kNone, "no slot for sequence ", seq.id);
  seq.live = live;
  seq.source = source;
  seq.branch = seq.blocks.found > seq.num_columns() ? seq.blocks.found * seq.block_size : 0;
}

/// `restored`: columns from host blocks.
void Planner::count_prefix(Sequence& seq, int32_t restored) {
  seq.cached_prompt_tokens = seq.computed;
  seq.host_prompt_tokens = restored * seq.block_size;
  state_.prefix_hit_tokens += static_cast<uint64_t>(seq.computed);
  state_.prefix_host_hit_tokens += static_cast<uint64_t>(seq.host_prompt_tokens);
  state_.prefix_miss_tokens += static_cast<uint64_t>(seq.remaining());
  state_.prefix_found_tokens += static_cast<uint64_t>(seq.blocks.found * seq.block_size);
}

/// Whether the block that would continue the cached prefix of `seq` is being filled by a senior, so
/// that it can be shared once it is committed.
bool Planner::prefix_is_coming(const Sequence& seq) const {
  if (seq.has_state) return snapshot_is_coming(seq);
  const auto index = static_cast<size_t>(seq.num_columns());
  const size_t end = (index + 1) * static_cast<size_t>(seq.block_size);
  if (!seq.reads_cache() || !state_.blocks.prefix_caching() || end >= seq.tokens.size()) {
    return false;
  }
  const std::span<Sequence* const> seniors = std::span(state_.running).first(visited_);
  return std::ranges::any_of(seniors,
                             [&](const Sequence* s) { return is_filling(*s, seq, index); });
}

/// Whether a senior will save a state that `seq` can begin with, behind what it finds now.
bool Planner::snapshot_is_coming(const Sequence& seq) const {
  const KvBlocks& blocks = state_.blocks;
  if (!seq.reads_cache() || !blocks.prefix_caching() || blocks.states().available() == 0) {
    return false;
  }
  const std::span<Sequence* const> seniors = std::span(state_.running).first(visited_);
  return std::ranges::any_of(seniors, [&](const Sequence* s) { return will_save(*s, seq); });
}

/// Whether `senior`, which is at least as far as `seq`, goes on to a snapshot on what they share.
bool Planner::will_save(const Sequence& senior, const Sequence& seq) const {
  const int32_t begin = std::max(seq.covered(), senior.computed);
  const int32_t most = std::min(senior.num_tokens(), seq.num_tokens() - 1);
  return senior.blocks.listed && senior.next_position() >= seq.covered() && goes_on(senior) &&
         senior.spec.identity.sequence == seq.spec.identity.sequence &&
         senior.last_snapshot(most) > begin &&
         senior.last_snapshot(std::min(most, common_tokens(senior, seq))) > begin;
}

/// Its rows are planned or in flight, or come as soon as they are ready.
bool Planner::goes_on(const Sequence& senior) const {
  return senior.in_flight > 0 || senior.is_held_up() ||
         std::ranges::any_of(planned_, [&](const PlannedRows& p) { return p.seq == &senior; });
}

/// Whether rows of `senior` that are planned or in flight, or as soon as they are ready, write to
/// its block `index`, which isn't published yet, what `seq` would write to its own. REQUIRES: the
/// blocks of `seq` end before it.
bool Planner::is_filling(const Sequence& senior, const Sequence& seq, size_t index) const {
  const auto size = static_cast<size_t>(seq.block_size);
  const bool has_block = std::cmp_greater(senior.num_columns(), index) || senior.is_held_up();
  if (static_cast<size_t>(senior.published) != index || !has_block || !senior.blocks.listed ||
      senior.tokens.size() < (index + 1) * size ||
      senior.spec.identity.sequence != seq.spec.identity.sequence) {
    return false;
  }
  // The chains of published blocks are the same if their last blocks are.
  const auto last_before = [&](const Sequence& s) { return s.blocks.groups.front()[index - 1]; };
  if (index > 0 && last_before(senior) != last_before(seq)) return false;
  const auto tokens_in = [&](const Sequence& s) {
    return std::span<const int32_t>(s.tokens).subspan(index * size, size);
  };
  const auto media_in = [&](const Sequence& s) {
    return s.spec.identity.media_in(index * size, (index + 1) * size);
  };
  return std::ranges::equal(tokens_in(senior), tokens_in(seq)) &&
         std::ranges::equal(media_in(senior), media_in(seq)) && goes_on(senior);
}

/// Whether the blocks suffice for all of `seq`, and a slot is there for its state, after its
/// juniors have given theirs if need be.
/// Decodes that could take none from others keep those they lack: else they would rest, and the
/// next plan would end one of the running for the sake of a newcomer.
bool Planner::make_room_for(const Sequence& seq) {
  const int32_t wanted = seq.blocks_wanted(seq.covered()) + blocks_promised_;
  const auto kept = [this] { return interrupts() ? blocks_set_aside_ : 0; };
  const auto lacks_slot = [&] { return seq.has_state && state_.blocks.states().available() == 0; };
  while (state_.blocks.available() < wanted + kept() || lacks_slot()) {
    if (preempt_most_junior(visited_)) continue;
    HEADRACE_CHECK(gives_up_ || visited_ > 0, "sequence ", seq.id, " does not fit alone");
    return false;
  }
  return true;
}

/// Gives running[visited_] its rows of this step: none if there are no rows or blocks for it, or
/// nothing remains.
void Planner::schedule(Sequence& seq) {
  if (seq.remaining() == 0) return;
  const int32_t start = seq.next_position();
  int32_t rows = 1;
  count_ahead(seq, -1);
  if (!seq.decodes()) {
    rows = std::min(seq.remaining(), prefill_rows());
    if (const int32_t chunk = state_.config.max_prefill_chunk; chunk > 0) {
      rows = std::min(rows, std::max(chunk, seq.least_end() - start));
    }
  }
  rows = seq.postponed ? 0 : std::max(0, std::min(rows, seq.ready_until - start));
  rows = seq.uncut_end(cover(seq, seq.uncut_end(start + rows))) - start;
  if (seq.spec.one_step && rows < seq.remaining()) return wait_for_room(seq);
  HEADRACE_CHECK(rows > 0 || gives_up_ || visited_ > 0 || seq.rests(), "sequence ", seq.id,
                 " has no senior and cannot go on");
  blocks_promised_ += seq.blocks_wanted(seq.computed);
  if (rows <= 0) return;
  rows_left_ -= rows;
  plan_.num_rows += rows;

  PlannedSeq planned;
  planned.id = seq.id;
  planned.start_pos = start;
  planned.num_tokens = rows;
  planned.num_prompt_tokens = seq.num_prompt;
  planned.samples = seq.generates() && rows == seq.remaining();
  if (seq.to_come > 0) {
    planned.drawn_by = seq.draw;
  } else {
    planned.tokens = std::span<const int32_t>(seq.tokens)
                         .subspan(static_cast<size_t>(start), static_cast<size_t>(rows));
  }
  planned.tables = seq.blocks.groups;
  plan_.seqs.push_back(planned);
  planned_.push_back({seq.id, &seq, rows, 0, planned.samples});
}

/// It needs all its rows at once: its blocks are for others meanwhile, and nobody is admitted, so
/// that they get fewer.
void Planner::wait_for_room(Sequence& seq) {
  state_.drop_blocks(seq);
  admission_open_ = false;
}

/// Takes columns until `positions` are covered, from juniors if need be. Returns how many are.
int32_t Planner::cover(Sequence& seq, int32_t positions) {
  seq.blocks.reserve(ceil_div(positions, seq.block_size));
  while (seq.covered() < positions) {
    if (interrupts() && !may_take_column(seq)) break;
    if (state_.blocks.take_column(seq.blocks)) continue;
    if (interrupts() || !preempt_most_junior(visited_ + 1)) break;
  }
  return std::min(positions, seq.covered());
}

/// For the first row of a decode or of the most senior, yes; for more, only what the decodes ahead
/// can do without.
bool Planner::may_take_column(const Sequence& seq) const {
  const bool is_counted = seq.decodes() || visited_ == 0;
  return (is_counted && seq.lacking_columns() > 0) ||
         state_.blocks.available() >= blocks_set_aside_ + column_blocks();
}

/// Sends the most junior of running[first ..) back to wait; false if there is none.
bool Planner::preempt_most_junior(size_t first) {
  if (state_.running.size() <= first) return false;
  if (ahead_) {
    gives_up_ = true;
    return false;
  }
  Sequence& victim = *state_.running.back();
  count_ahead(victim, -1);
  state_.preempt(victim);
  last_victim_ = &victim;
  return true;
}

/// Rows and blocks that nobody else has a use for go to guesses, senior first.
void Planner::grant_drafts() {
  for (size_t i = 0; i < planned_.size() && rows_left_ > 0; ++i) {
    Sequence& seq = *planned_[i].seq;
    if (!seq.decodes()) continue;
    PlannedSeq& planned = plan_.seqs[i];
    int32_t count = std::min(seq.max_drafts(), rows_left_);
    if (seq.has_state) count = std::min(count, state_.blocks.states().available());
    planned.num_drafts = planned_[i].drafts = cover_drafts(seq, count);
    if (seq.has_state) take_draft_slots(planned_[i]);
    rows_left_ -= planned.num_drafts;
    plan_.num_rows += planned.num_drafts;
  }
}

/// Takes the blocks that `count` guesses need, as far as every sequence keeps those it will soon
/// want. Returns how many guesses are covered.
int32_t Planner::cover_drafts(Sequence& seq, int32_t count) {
  if (count <= 0) return 0;
  const int32_t end = seq.num_tokens() + count;
  seq.blocks.reserve(ceil_div(end, seq.block_size));
  while (seq.covered() < end && seq.num_columns() < seq.columns_ahead()) {
    const int32_t promised =
        blocks_promised_ - seq.blocks_wanted(seq.computed) + seq.blocks_wanted(seq.computed, 1);
    if (state_.blocks.available() < promised + column_blocks()) break;
    if (!state_.blocks.take_column(seq.blocks)) break;
    blocks_promised_ = promised;
  }
  return std::min(end, seq.covered()) - seq.num_tokens();
}

/// For the states behind all rows of a decode with guesses but the last.
void Planner::take_draft_slots(PlannedRows& planned) {
  planned.saves.reserve(static_cast<size_t>(planned.drafts) + 1);  // commit() adds one
  for (int32_t row = 0; row < planned.drafts; ++row) {
    planned.saves.push_back({row, state_.blocks.states().take()});
  }
}

/// The last ones first, as long as there are slots. Of those behind its prompt a sequence keeps
/// the last alone.
void Planner::save_snapshots(PlannedRows& planned) {
  const Sequence& seq = *planned.seq;
  if (planned.drafts > 0 || !state_.blocks.prefix_caching() || !seq.blocks.listed) return;
  const int32_t start = seq.next_position();
  int32_t position = seq.last_snapshot(start + planned.rows);
  while (position > start) {
    planned.saves.reserve(planned.saves.size() + 1);
    const int32_t slot = state_.blocks.states().take();
    if (slot == StateSlots::kNone) break;
    planned.saves.push_back({position - start - 1, slot});
    position = seq.last_snapshot(std::min(position - 1, seq.num_prompt));
  }
  std::ranges::reverse(planned.saves);
}

/// A state behind the last row is saved instead of going to the sequence's own slot; the next rows
/// begin with it.
void Planner::show_states() {
  for (size_t i = 0; i < planned_.size(); ++i) {
    PlannedSeq& planned = plan_.seqs[i];
    planned.state_in = planned_[i].seq->state_in();
    planned.state_out = planned_[i].seq->live;
    planned.saves = planned_[i].saves;
    if (!planned_[i].saves_last()) continue;
    planned.state_out = planned.saves.back().slot;
    planned.saves = planned.saves.first(planned.saves.size() - 1);
  }
}

/// From here on the rows are to be committed.
void Planner::make_pending() {
  for (const PlannedRows& planned : planned_) {
    if (!planned.seq->scheduled_before) plan_.first_scheduled.push_back(planned.id);
  }
  if (!planned_.empty()) plan_.copies = state_.blocks.take_copies();
  (ahead_ ? state_.ahead_copies : state_.pending_copies) = !plan_.copies.empty();
  int32_t draws = 0;
  for (const PlannedRows& planned : planned_) {
    Sequence& seq = *planned.seq;
    seq.scheduled_before = true;
    seq.in_flight += planned.rows;
    if (seq.has_state) state_.move_source(seq, planned);
    if (!planned.samples) continue;
    ++seq.to_come;
    seq.draw = draws++;
  }
  (ahead_ ? state_.ahead : state_.pending) = std::exchange(planned_, {});
  plan_.expired = std::exchange(state_.expired, {});
  plan_.interrupted = std::exchange(state_.interrupted, {});
  plan_.preempted = std::exchange(state_.preempted, {});
}

}  // namespace headrace
