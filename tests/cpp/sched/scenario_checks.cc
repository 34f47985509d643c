// What a scenario checks at every step.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "cpp/sched/scenario.h"

namespace headrace::fake {

void Scenario::check_expired(const StepPlan& plan) {
  for (const SeqId id : plan.expired) {
    ASSERT_TRUE(jobs_.contains(id));
    ASSERT_NE(jobs_[id].spec.deadline, 0);
    ASSERT_LE(jobs_[id].spec.deadline, now_);
    jobs_.erase(id);
  }
  for (const auto& [id, job] : jobs_) {
    ASSERT_TRUE(job.spec.deadline == 0 || job.spec.deadline > now_) << id;
  }
}

namespace {

/// The item that has a row at `position` and whose rows come together; null: none.
const MediaItem* whole_item_at(const SeqSpec& spec, int32_t position) {
  if (!spec.whole_items || spec.identity.media == nullptr) return nullptr;
  const auto found = std::ranges::find_if(*spec.identity.media, [&](const MediaItem& item) {
    return item.first <= position && position < item.last;
  });
  return found == spec.identity.media->end() ? nullptr : &*found;
}

}  // namespace

int32_t least_end(const SeqSpec& spec, int32_t position) {
  const MediaItem* const item = whole_item_at(spec, position);
  return item == nullptr ? position + 1 : item->last;
}

/// Blocks that the next rows of the decodes, and of the most senior that runs, need.
int32_t Scenario::lacking_blocks() const {
  const Job* first = nullptr;
  for (const auto& [id, job] : jobs_) {
    const bool is_senior = first == nullptr || job.spec.priority < first->spec.priority;
    if (job.running && is_senior) first = &job;
  }
  int32_t columns = 0;
  for (const auto& [id, job] : jobs_) {
    const bool decodes = job.computed + 1 == static_cast<int32_t>(job.tokens.size());
    if (!job.running || (!decodes && &job != first)) continue;
    const int32_t size = config_.block_size, end = least_end(job.spec, job.computed);
    columns += std::max(0, (end + size - 1) / size - job.num_columns);
  }
  return num_groups() * columns;
}

/// `lacking`: blocks that were needed before the plan beyond those that were free.
void Scenario::check_interrupted(const StepPlan& plan, int32_t lacking, const Options& options) {
  const bool interrupts = config_.out_of_blocks != OutOfBlocks::kPreempt;
  if (is_exact(options) && plan.expired.empty()) {
    ASSERT_EQ(!plan.interrupted.empty(), interrupts && lacking > 0) << lacking;
  }
  for (const SeqId id : plan.interrupted) {
    ASSERT_TRUE(interrupts && jobs_.contains(id));
    const Job& victim = jobs_.at(id);
    ASSERT_TRUE(victim.running || !is_exact(options));
    for (const auto& [other_id, other] : jobs_) {
      if (!is_exact(options) || !other.running || other_id == id) continue;
      if (config_.out_of_blocks != OutOfBlocks::kInterruptLongest) continue;
      const auto place = [](const Job& job, SeqId job_id) {
        return std::make_tuple(job.tokens.size(), job.spec.priority, job_id);
      };
      ASSERT_GT(place(victim, id), place(other, other_id));
    }
    jobs_.erase(id);
    ++interrupted_;
  }
  ASSERT_EQ(scheduler_.stats().interruptions, interrupted_);
  if (interrupts && !options.priorities && !options.arm) {
    // By abandon_step() alone, which also sends back what a plan ahead that was given up admitted.
    ASSERT_TRUE(std::ranges::all_of(plan.preempted, [&](SeqId id) {
      return sent_back_.contains(id) ||
             (lost_caches_ > 0 && (given_up_ > 0 || options.rests) && !jobs_.at(id).running);
    }));
    for (const auto& [id, job] : jobs_) {
      if (!job.running || job.computed + 1 != static_cast<int32_t>(job.tokens.size())) continue;
      if (job.postponed || job.computed >= job.ready) continue;
      ASSERT_EQ(std::ranges::count(plan.seqs, id, &PlannedSeq::id), 1) << id << " rests";
    }
  }
}

void Scenario::check_preempted(const StepPlan& plan, const Options& options) {
  for (const SeqId id : plan.preempted) {
    ASSERT_TRUE(jobs_.contains(id));
    if (sent_back_.erase(id) > 0) continue;
    if (is_exact(options)) {
      ASSERT_TRUE(jobs_[id].running) << "twice, or it held nothing";
      ASSERT_EQ(std::ranges::count(plan.seqs, id, &PlannedSeq::id), 0);
    }
    jobs_[id].running = false;
    jobs_[id].computed = jobs_[id].num_columns = 0;
    jobs_[id].ready = jobs_[id].spec.ready_until;
  }
  if (!options.arm) {
    std::erase_if(sent_back_, [this](SeqId id) { return !jobs_.contains(id); });
    ASSERT_TRUE(sent_back_.empty()) << "preempted without saying so";
  }
}

void Scenario::check_rows(const StepPlan& plan) {
  int32_t rows = 0;
  std::set<SeqId> ids;
  std::vector<SeqId> first;
  for (const PlannedSeq& seq : plan.seqs) {
    ASSERT_TRUE(jobs_.contains(seq.id)) << "it has ended";
    ASSERT_TRUE(ids.insert(seq.id).second) << "twice in a plan";
    if (!jobs_[seq.id].scheduled) first.push_back(seq.id);
    check_sequence(seq);
    if (testing::Test::HasFatalFailure()) return;
    check_drafts(seq);
    rows += seq.num_tokens + seq.num_drafts;
  }
  ASSERT_EQ(first, plan.first_scheduled);
  ASSERT_EQ(rows, plan.num_rows);
  ASSERT_LE(rows, config_.max_num_batched_tokens);
}

void Scenario::check_sequence(const PlannedSeq& seq) {
  Job& job = jobs_[seq.id];
  if (job.running) {
    ASSERT_EQ(seq.start_pos, job.computed + job.in_flight);
  } else {
    // Admitted: it may start behind whole cached blocks.
    ASSERT_EQ(seq.start_pos % config_.block_size, 0);
    const bool reads = config_.enable_prefix_caching && job.spec.read_prefix_cache &&
                       !job.spec.wants_all_prompt_logits;
    if (!reads) {
      ASSERT_EQ(seq.start_pos, 0);
    }
    continued_ += kv_.has_states() && seq.start_pos > 0;
    if (!job.scheduled) {
      ASSERT_EQ(scheduler_.cached_prompt_tokens(seq.id), seq.start_pos);
      ASSERT_LE(scheduler_.host_prompt_tokens(seq.id), seq.start_pos);
    }
    job.running = job.scheduled = true;
    job.computed = seq.start_pos;
  }
  ASSERT_GE(seq.num_tokens, 1);
  ASSERT_LE(seq.num_tokens, job.remaining());
  ASSERT_LE(seq.start_pos + seq.num_tokens, job.ready) << "rows that are not ready";
  const int32_t least = least_end(job.spec, seq.start_pos) - seq.start_pos;
  if (config_.max_prefill_chunk > 0) {
    ASSERT_LE(seq.num_tokens, std::max(config_.max_prefill_chunk, least));
  }
  whole_items_ += static_cast<uint64_t>(least - 1);
  const int32_t end = seq.start_pos + seq.num_tokens;
  ASSERT_TRUE(whole_item_at(job.spec, end) == nullptr || whole_item_at(job.spec, end)->first == end)
      << "an item is cut";
  ASSERT_EQ(seq.samples, job.spec.max_tokens > 0 && seq.num_tokens == job.remaining());
  ASSERT_EQ(seq.num_prompt_tokens, static_cast<int32_t>(job.spec.prompt.size()));
  check_tokens(seq);
  for (int32_t p = seq.start_pos; p < seq.start_pos + seq.num_tokens; ++p) {
    ASSERT_EQ(scheduler_.rope_len(seq.id, p),
              p < seq.num_prompt_tokens ? seq.num_prompt_tokens : p + 1);
  }
  ASSERT_EQ(seq.tables.size(), config_.windows.size());
  job.num_columns = static_cast<int32_t>(seq.tables.front().size());
  ASSERT_GE(job.num_columns * config_.block_size, seq.start_pos + seq.num_tokens + seq.num_drafts);
  check_given_back(seq);
}

void Scenario::check_tokens(const PlannedSeq& seq) {
  const Job& job = jobs_.at(seq.id);
  ASSERT_EQ(seq.drawn_by >= 0, job.to_come > 0);
  if (seq.drawn_by >= 0) {
    ASSERT_TRUE(seq.tokens.empty() && seq.num_tokens == 1);
    return;
  }
  ASSERT_TRUE(std::equal(seq.tokens.begin(), seq.tokens.end(), job.tokens.begin() + seq.start_pos,
                         job.tokens.begin() + seq.start_pos + seq.num_tokens));
}

void Scenario::check_drafts(const PlannedSeq& seq) {
  const Job& job = jobs_[seq.id];
  ASSERT_GE(seq.num_drafts, 0);
  if (seq.num_drafts == 0) return;
  ASSERT_LE(seq.num_drafts, job.wished);
  ASSERT_TRUE(seq.samples && seq.num_tokens == 1) << "guesses in a prefill";
  ASSERT_LT(job.num_output() + seq.num_drafts, job.spec.max_tokens);
}

const Scenario::Job* Scenario::most_senior() const {
  const Job* best = nullptr;
  for (const auto& [id, job] : jobs_) {
    if (best == nullptr || job.spec.priority < best->spec.priority) best = &job;
  }
  return best;
}

void Scenario::check_order(const StepPlan& plan) {
  const auto rank = [this](SeqId id) { return std::make_pair(jobs_.at(id).spec.priority, id); };
  for (size_t i = 1; i < plan.seqs.size(); ++i) {
    ASSERT_LT(rank(plan.seqs[i - 1].id), rank(plan.seqs[i].id));
  }
  if (jobs_.empty()) {
    ASSERT_TRUE(plan.empty());
    return;
  }
  const Job* const first = most_senior();
  const bool has_rows = !plan.seqs.empty() && &jobs_.at(plan.seqs.front().id) == first;
  if (first->remaining() > 0 && !has_rows) {
    const auto own = std::ranges::find_if(jobs_, [&](const auto& j) { return &j.second == first; });
    ASSERT_TRUE(is_held_up(own->first)) << "the most senior always goes on";
    ++rests_;
  }
  check_turns(plan);
}

void Scenario::check_turns(const StepPlan& plan) {
  // Within a class nobody overtakes; a decode rests only when the blocks are used up, and never
  // where what it lacks is set aside.
  const bool may_rest = config_.out_of_blocks == OutOfBlocks::kPreempt &&
                        scheduler_.stats().free_blocks < num_groups();
  const auto running = std::ranges::count_if(jobs_, [](const auto& j) { return j.second.running; });
  // One admitted by a plan that then ran out of memory runs, but may not have been seen to yet.
  const bool all_seen = running == scheduler_.stats().running;
  std::map<int32_t, bool> class_waits;
  for (const auto& [id, job] : jobs_) {
    if (!job.running) {
      class_waits[job.spec.priority] = true;
      continue;
    }
    ASSERT_FALSE(all_seen && class_waits[job.spec.priority]) << id << " has overtaken";
    if (job.remaining() == 1 && !may_rest && !is_held_up(id)) {
      ASSERT_EQ(std::ranges::count(plan.seqs, id, &PlannedSeq::id), 1) << id << " starves";
    }
  }
  ASSERT_LE(running, config_.max_num_seqs);
}

/// A sliding group holds what is read, and the last published column; nothing else is missing.
void Scenario::check_given_back(const PlannedSeq& seq) {
  const Job& job = jobs_.at(seq.id);
  const int32_t computed = job.computed, size = config_.block_size;
  // A plan that failed may have taken columns for all that remains.
  const int32_t rows = ran_out_of_memory_
                           ? static_cast<int32_t>(job.tokens.size()) + job.to_come - computed
                           : seq.start_pos + seq.num_tokens + seq.num_drafts - computed;
  for (size_t g = 0; g < seq.tables.size(); ++g) {
    const Table& table = seq.tables[g];
    const int32_t window = config_.windows[g];
    ASSERT_EQ(table.size(), seq.tables.front().size());
    const int32_t read = window > 0 ? std::max(0, computed - window + 1) / size : 0;
    const int32_t first = std::max(0, std::min(read, computed / size - 1));
    const int32_t columns = static_cast<int32_t>(table.size());
    for (int32_t i = 0; i < columns; ++i) {
      ASSERT_EQ(table[static_cast<size_t>(i)] == KvBlocks::kNone, i < first) << i << " of " << g;
    }
    given_back_ += static_cast<uint64_t>(first);
    if (window == 0) continue;
    const KvGroups groups = kv_groups(config_);
    ASSERT_LE(columns - first, groups.held_columns(g, columns, std::max(rows, size)) + 1);
  }
}

/// A block in two tables is at the same place of both, behind the same tokens, and not written.
void Scenario::check_blocks(const StepPlan& plan) {
  struct Use {
    const PlannedSeq* seq;
    size_t group, index;
  };
  std::map<int32_t, Use> uses;
  for (const PlannedSeq& seq : plan.seqs) {
    const size_t columns = seq.tables.front().size();
    for (size_t n = 0; n < columns * seq.tables.size(); ++n) {
      const size_t g = n / columns, i = n % columns;
      const int32_t block = seq.tables[g][i];
      if (block == KvBlocks::kNone) continue;
      ASSERT_LT(block, config_.num_blocks);
      const auto [use, is_new] = uses.try_emplace(block, Use{&seq, g, i});
      if (is_new) continue;
      ASSERT_EQ(use->second.index, i);
      ASSERT_EQ(use->second.group, g);
      const auto end = static_cast<int32_t>(i + 1) * config_.block_size;
      ASSERT_LE(end, seq.start_pos);
      ASSERT_LE(end, use->second.seq->start_pos);
      const Job &a = jobs_.at(seq.id), &b = jobs_.at(use->second.seq->id);
      const CacheIdentity &of_a = a.spec.identity, &of_b = b.spec.identity;
      ASSERT_EQ(of_a.sequence, of_b.sequence);
      const auto size = static_cast<size_t>(end);
      ASSERT_TRUE(std::ranges::equal(of_a.media_in(0, size), of_b.media_in(0, size)));
      ASSERT_TRUE(std::equal(a.tokens.begin(), a.tokens.begin() + end, b.tokens.begin()));
    }
  }
  const SchedulerStats stats = scheduler_.stats();
  ASSERT_LE(static_cast<int32_t>(uses.size()), config_.num_blocks - stats.free_blocks);
  if (static_cast<int32_t>(plan.seqs.size()) == stats.running) {
    ASSERT_EQ(static_cast<int32_t>(uses.size()), config_.num_blocks - stats.free_blocks);
  }
}

void Scenario::check_committed(const CommittedSeq& result, const std::vector<int32_t>& sampled) {
  if (!jobs_.contains(result.id)) {
    ASSERT_EQ(result.end, SeqEnd::kCancelled);
    ASSERT_EQ(result.num_tokens, 0);
    return;
  }
  Job& job = jobs_.at(result.id);
  ASSERT_EQ(result.num_tokens > 0, !sampled.empty());
  if (result.end == SeqEnd::kNone) {
    ASSERT_EQ(static_cast<size_t>(result.num_tokens), sampled.size());
  }
  if (result.num_tokens == 0) {
    const bool is_done = job.spec.max_tokens == 0 && job.remaining() == 0 && job.in_flight == 0;
    ASSERT_EQ(result.end, is_done ? SeqEnd::kPrompt : SeqEnd::kNone);
    if (is_done) jobs_.erase(result.id);
    return;
  }
  const std::span kept = std::span(sampled).first(static_cast<size_t>(result.num_tokens));
  ASSERT_EQ(*result.token, kept.back());
  tokens_generated_ += kept.size();
  job.computed += result.num_tokens - 1;
  job.tokens.insert(job.tokens.end(), kept.begin(), kept.end());
  const auto count = static_cast<size_t>(job.num_output());
  ASSERT_LE(count, job.alone.output.size());
  ASSERT_TRUE(std::ranges::equal(std::span(job.tokens).last(count),
                                 std::span(job.alone.output).first(count)));
  ASSERT_EQ(result.end, count == job.alone.output.size() ? job.alone.end : SeqEnd::kNone);
  if (result.end != SeqEnd::kNone) jobs_.erase(result.id);
}

void Scenario::check_stats() {
  stats_ = scheduler_.stats();
  ASSERT_EQ(stats_.total_blocks, config_.num_blocks);
  ASSERT_EQ(stats_.waiting + stats_.running, static_cast<int32_t>(jobs_.size()));
  ASSERT_LE(stats_.running, config_.max_num_seqs);
  ASSERT_LE(stats_.cached_blocks, stats_.free_blocks);
  ASSERT_LE(stats_.cached_host_blocks, config_.num_host_blocks);
  ASSERT_LE(stats_.prefix_host_hit_tokens, stats_.prefix_hit_tokens);
  ASSERT_EQ(scheduler_.has_work(), !jobs_.empty());
  check_slot_counts();
}

}  // namespace headrace::fake
