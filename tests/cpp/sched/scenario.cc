#include "cpp/sched/scenario.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <set>
#include <tuple>
#include <utility>

namespace headrace::fake {

Scenario::Scenario(const SchedulerConfig& config, uint64_t seed)
    : config_(config),
      random_(seed),
      scheduler_(config),
      kv_(config.num_blocks, config.block_size, config.num_host_blocks),
      dynamic_rope_(seed % 4 == 0) {}

SeqSpec Scenario::random_spec(const Options& options) {
  SeqSpec spec;
  // Prompts begin like one of three texts, so that prefixes are shared.
  const uint64_t text = below(3);
  const uint64_t shared = below(4) == 0 ? 0 : below(static_cast<uint64_t>(options.max_prompt));
  const uint64_t own = below(6);
  for (uint64_t i = 0; i < shared; ++i) {
    spec.prompt.push_back(static_cast<int32_t>(mix(text, i) % kVocab));
  }
  for (uint64_t i = 0; i < own || spec.prompt.empty(); ++i) {
    spec.prompt.push_back(static_cast<int32_t>(below(kVocab)));
  }
  spec.max_tokens = static_cast<int32_t>(1 + below(static_cast<uint64_t>(options.max_output)));
  spec.min_tokens = once_in(3) ? static_cast<int32_t>(below(8)) : 0;
  std::set<int32_t> ends;
  for (uint64_t i = below(3); i > 0; --i) ends.insert(static_cast<int32_t>(below(kVocab)));
  spec.end_tokens.assign(ends.begin(), ends.end());
  for (uint64_t i = below(3); i > 0; --i) {
    std::vector<int32_t>& stop = spec.stop_sequences.emplace_back();
    for (uint64_t n = 1 + below(3); n > 0; --n) stop.push_back(static_cast<int32_t>(below(kVocab)));
  }
  spec.stop_sequences_anywhere = once_in(4);
  if (options.priorities) spec.priority = static_cast<int32_t>(below(3)) - 1;
  if (options.deadlines && once_in(5)) spec.deadline = now_ + static_cast<double>(below(60));
  spec.read_prefix_cache = !once_in(8);
  spec.wants_all_prompt_logits = once_in(10);
  spec.cache_namespace = below(4) == 0;
  if (dynamic_rope_) spec.cache_namespace = kDynamicRope + spec.prompt.size();
  return spec;
}

/// Out of memory at any point costs nothing but another try.
template <class Call>
auto Scenario::with_failing_allocations(const Options& options, const Call& call) {
  while (options.arm && !once_in(3)) {
    options.arm(static_cast<int64_t>(below(12)));
    try {
      auto result = call();
      options.arm(-1);
      return result;
    } catch (const std::bad_alloc&) {
      options.arm(-1);
    }
  }
  return call();
}

void Scenario::add_request(const Options& options) {
  if (to_add_ == 0) return;
  --to_add_;
  SeqSpec spec = random_spec(options);
  if (!scheduler_.fits(static_cast<int64_t>(spec.prompt.size()), spec.max_tokens)) return;
  if (static_cast<int32_t>(spec.prompt.size()) + spec.max_tokens > config_.max_model_len) return;
  Job job;
  job.spec = spec;
  job.tokens = spec.prompt;
  job.alone = run_alone(spec);
  const SeqId id = with_failing_allocations(options, [&] { return scheduler_.add(spec); });
  ASSERT_FALSE(jobs_.contains(id));
  jobs_[id] = std::move(job);
}

void Scenario::cancel_random() {
  if (jobs_.empty()) return;
  const auto job = std::next(jobs_.begin(), static_cast<int64_t>(below(jobs_.size())));
  ASSERT_TRUE(scheduler_.cancel(job->first));
  ASSERT_FALSE(scheduler_.cancel(job->first));
  jobs_.erase(job);
}

void Scenario::run(const Options& options) {
  to_add_ = options.num_requests;
  while (to_add_ > 0 && !testing::Test::HasFailure()) {
    for (uint64_t n = below(options.arrivals_per_step); n > 0; --n) add_request(options);
    if (options.cancellations && once_in(12)) cancel_random();
    if (once_in(40)) scheduler_.clear_prefix_cache();
    step(options);
  }
  // Without arrivals the most senior one gains a row in every step and loses none.
  size_t most_steps = 1;
  for (const auto& [id, job] : jobs_) {
    most_steps += job.spec.prompt.size() + static_cast<size_t>(job.spec.max_tokens);
  }
  for (; scheduler_.has_work() && !testing::Test::HasFailure(); --most_steps) {
    ASSERT_GT(most_steps, 0u) << "no progress";
    step(options);
  }
  if (testing::Test::HasFailure()) return;
  EXPECT_TRUE(jobs_.empty());
  stats_ = scheduler_.stats();
  EXPECT_EQ(stats_.free_blocks, config_.num_blocks);
  scheduler_.clear_prefix_cache();
  EXPECT_EQ(scheduler_.stats().cached_blocks + scheduler_.stats().cached_host_blocks, 0);
}

void Scenario::step(const Options& options) {
  now_ += 1;
  const int32_t lacking = lacking_blocks() - scheduler_.stats().free_blocks;
  if (options.drafts) wish_drafts();
  const StepPlan plan = with_failing_allocations(options, [this] { return scheduler_.plan(now_); });
  check_expired(plan);
  check_interrupted(plan, lacking, options);
  check_preempted(plan, options);
  check_rows(plan);
  check_order(plan);
  check_blocks(plan);
  check_stats();
  if (plan.empty() || testing::Test::HasFatalFailure()) return;
  const auto spec_of = [this](SeqId id) -> const SeqSpec& { return jobs_.at(id).spec; };
  const auto rope_len = [this](SeqId id, int32_t p) { return scheduler_.rope_len(id, p); };
  const std::vector<uint64_t> values = run_step(plan, kv_, spec_of, rope_len);
  const std::vector<std::vector<int32_t>> sampled = sample(plan, values);
  // What comes while the step runs must not disturb it.
  if (once_in(4)) add_request(options);
  if (options.cancellations && once_in(10)) {
    const PlannedSeq& chosen = plan.seqs[below(plan.seqs.size())];
    ASSERT_TRUE(scheduler_.cancel(chosen.id));
    ASSERT_FALSE(scheduler_.cancel(chosen.id));
    jobs_.at(chosen.id).cancelled = true;
  }
  if (options.cancellations && once_in(20)) {
    for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
      if (std::ranges::count(plan.seqs, job->first, &PlannedSeq::id) > 0) continue;
      ASSERT_TRUE(scheduler_.cancel(job->first));
      jobs_.erase(job);
      break;
    }
  }
  if (options.abandoned_steps && once_in(60)) {
    abandon(plan);
  } else {
    commit(plan, sampled, options);
  }
  check_stats();
}

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

/// Blocks that the next rows of the decodes, and of the most senior that runs, need.
int32_t Scenario::lacking_blocks() const {
  const Job* first = nullptr;
  for (const auto& [id, job] : jobs_) {
    const bool is_senior = first == nullptr || job.spec.priority < first->spec.priority;
    if (job.running && is_senior) first = &job;
  }
  return static_cast<int32_t>(std::ranges::count_if(jobs_, [&](const auto& entry) {
    const Job& job = entry.second;
    const bool decodes = job.computed + 1 == static_cast<int32_t>(job.tokens.size());
    return job.running && (decodes || &job == first) &&
           job.computed == job.num_blocks * config_.block_size;
  }));
}

/// `lacking`: blocks that were needed before the plan beyond those that were free.
void Scenario::check_interrupted(const StepPlan& plan, int32_t lacking, const Options& options) {
  const bool interrupts = config_.out_of_blocks != OutOfBlocks::kPreempt;
  if (!options.arm && plan.expired.empty()) {
    ASSERT_EQ(!plan.interrupted.empty(), interrupts && lacking > 0) << lacking;
  }
  for (const SeqId id : plan.interrupted) {
    ASSERT_TRUE(interrupts && jobs_.contains(id));
    const Job& victim = jobs_.at(id);
    ASSERT_TRUE(victim.running || options.arm);
    for (const auto& [other_id, other] : jobs_) {
      if (options.arm || !other.running || other_id == id) continue;
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
    ASSERT_TRUE(plan.preempted.empty());
    for (const auto& [id, job] : jobs_) {
      if (!job.running || job.computed + 1 != static_cast<int32_t>(job.tokens.size())) continue;
      ASSERT_EQ(std::ranges::count(plan.seqs, id, &PlannedSeq::id), 1) << id << " rests";
    }
  }
}

void Scenario::check_preempted(const StepPlan& plan, const Options& options) {
  for (const SeqId id : plan.preempted) {
    ASSERT_TRUE(jobs_.contains(id));
    if (sent_back_.erase(id) > 0) continue;
    if (!options.arm) {
      ASSERT_TRUE(jobs_[id].running) << "twice, or it held nothing";
      ASSERT_EQ(std::ranges::count(plan.seqs, id, &PlannedSeq::id), 0);
    }
    jobs_[id].running = false;
    jobs_[id].computed = jobs_[id].num_blocks = 0;
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
  const auto length = static_cast<int32_t>(job.tokens.size());
  if (job.running) {
    ASSERT_EQ(seq.start_pos, job.computed);
  } else {
    // Admitted: it may start behind whole cached blocks.
    ASSERT_EQ(seq.start_pos % config_.block_size, 0);
    const bool reads = config_.enable_prefix_caching && job.spec.read_prefix_cache &&
                       !job.spec.wants_all_prompt_logits;
    if (!reads) {
      ASSERT_EQ(seq.start_pos, 0);
    }
    if (!job.scheduled) {
      ASSERT_EQ(scheduler_.cached_prompt_tokens(seq.id), seq.start_pos);
      ASSERT_LE(scheduler_.host_prompt_tokens(seq.id), seq.start_pos);
    }
    job.running = job.scheduled = true;
    job.computed = seq.start_pos;
  }
  ASSERT_GE(seq.num_tokens, 1);
  ASSERT_LE(seq.start_pos + seq.num_tokens, length);
  if (config_.max_prefill_chunk > 0) {
    ASSERT_LE(seq.num_tokens, config_.max_prefill_chunk);
  }
  ASSERT_EQ(seq.samples, seq.start_pos + seq.num_tokens == length);
  ASSERT_EQ(seq.num_prompt_tokens, static_cast<int32_t>(job.spec.prompt.size()));
  ASSERT_TRUE(std::equal(seq.tokens.begin(), seq.tokens.end(), job.tokens.begin() + seq.start_pos,
                         job.tokens.begin() + seq.start_pos + seq.num_tokens));
  for (int32_t p = seq.start_pos; p < seq.start_pos + seq.num_tokens; ++p) {
    ASSERT_EQ(scheduler_.rope_len(seq.id, p),
              p < seq.num_prompt_tokens ? seq.num_prompt_tokens : p + 1);
  }
  job.num_blocks = static_cast<int32_t>(seq.blocks.size());
  ASSERT_GE(job.num_blocks * config_.block_size, seq.start_pos + seq.num_tokens + seq.num_drafts);
}

void Scenario::wish_drafts() {
  for (auto& [id, job] : jobs_) {
    if (!once_in(2)) continue;
    job.wished = static_cast<int32_t>(below(8));
    scheduler_.wish_drafts(id, job.wished);
  }
}

void Scenario::check_drafts(const PlannedSeq& seq) {
  const Job& job = jobs_[seq.id];
  ASSERT_GE(seq.num_drafts, 0);
  if (seq.num_drafts == 0) return;
  ASSERT_LE(seq.num_drafts, job.wished);
  ASSERT_TRUE(seq.samples && seq.num_tokens == 1) << "guesses in a prefill";
  ASSERT_LT(job.num_output() + seq.num_drafts, job.spec.max_tokens);
}

/// What each sequence samples, and how far its guesses, some of them wrong, are confirmed.
std::vector<std::vector<int32_t>> Scenario::sample(const StepPlan& plan,
                                                   const std::vector<uint64_t>& values) {
  std::vector<std::vector<int32_t>> out;
  for (size_t i = 0; i < plan.seqs.size(); ++i) {
    const PlannedSeq& seq = plan.seqs[i];
    if (!seq.samples) continue;
    const Job& job = jobs_.at(seq.id);
    std::vector<int32_t>& tokens = out.emplace_back();
    uint64_t all = values[i];
    tokens.push_back(choose(all, job.spec, job.num_output()));
    bool right = true;
    for (int32_t d = 0; d < seq.num_drafts; ++d) {
      const int32_t position = seq.start_pos + seq.num_tokens + d;
      const int32_t guess = once_in(3) ? static_cast<int32_t>(below(kVocab)) : tokens.back();
      uint64_t& value = kv_.at(seq.blocks, position);
      value = stored_value(job.spec, kv_.at(seq.blocks, position - 1), guess,
                           scheduler_.rope_len(seq.id, position));
      right = right && guess == tokens.back();
      if (!right) continue;
      all = mix(all, value);
      tokens.push_back(choose(all, job.spec, job.num_output() + d + 1));
      ++guessed_;
    }
  }
  return out;
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
  ASSERT_FALSE(plan.empty());
  ASSERT_EQ(&jobs_.at(plan.seqs.front().id), most_senior()) << "the most senior always goes on";
  // Within a class nobody overtakes; a decode rests only when the blocks are used up.
  const bool no_blocks = scheduler_.stats().free_blocks == 0;
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
    const bool decodes = job.computed + 1 == static_cast<int32_t>(job.tokens.size());
    if (decodes && !no_blocks) {
      ASSERT_EQ(std::ranges::count(plan.seqs, id, &PlannedSeq::id), 1) << id << " starves";
    }
  }
  ASSERT_LE(running, config_.max_num_seqs);
}

/// A block in two tables is at the same place of both, behind the same tokens, and not written.
void Scenario::check_blocks(const StepPlan& plan) {
  struct Use {
    const PlannedSeq* seq;
    size_t index;
  };
  std::map<int32_t, Use> uses;
  for (const PlannedSeq& seq : plan.seqs) {
    for (size_t i = 0; i < seq.blocks.size(); ++i) {
      ASSERT_GE(seq.blocks[i], 0);
      ASSERT_LT(seq.blocks[i], config_.num_blocks);
      const auto [use, is_new] = uses.try_emplace(seq.blocks[i], Use{&seq, i});
      if (is_new) continue;
      ASSERT_EQ(use->second.index, i);
      const auto end = static_cast<int32_t>(i + 1) * config_.block_size;
      ASSERT_LE(end, seq.start_pos);
      ASSERT_LE(end, use->second.seq->start_pos);
      const Job &a = jobs_.at(seq.id), &b = jobs_.at(use->second.seq->id);
      ASSERT_EQ(a.spec.cache_namespace, b.spec.cache_namespace);
      ASSERT_TRUE(std::equal(a.tokens.begin(), a.tokens.begin() + end, b.tokens.begin()));
    }
  }
  const SchedulerStats stats = scheduler_.stats();
  ASSERT_LE(static_cast<int32_t>(uses.size()), config_.num_blocks - stats.free_blocks);
  if (static_cast<int32_t>(plan.seqs.size()) == stats.running) {
    ASSERT_EQ(static_cast<int32_t>(uses.size()), config_.num_blocks - stats.free_blocks);
  }
}

void Scenario::commit(const StepPlan& plan, const std::vector<std::vector<int32_t>>& sampled,
                      const Options& options) {
  std::vector<int32_t> tokens, counts;
  for (const std::vector<int32_t>& own : sampled) {
    tokens.insert(tokens.end(), own.begin(), own.end());
    counts.push_back(static_cast<int32_t>(own.size()));
  }
  // The spans end with commit().
  struct Row {
    SeqId id;
    int32_t end_pos;
    bool samples;
  };
  std::vector<Row> rows;
  for (const PlannedSeq& seq : plan.seqs) {
    rows.push_back({seq.id, seq.start_pos + seq.num_tokens, seq.samples});
  }
  const std::vector<CommittedSeq> committed =
      with_failing_allocations(options, [&] { return scheduler_.commit(tokens, counts); });
  ASSERT_EQ(committed.size(), rows.size());
  auto own = sampled.begin();
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(committed[i].id, rows[i].id);
    jobs_.at(rows[i].id).computed = rows[i].end_pos;
    check_committed(committed[i], rows[i].samples ? *own++ : std::vector<int32_t>());
  }
}

void Scenario::check_committed(const CommittedSeq& result, const std::vector<int32_t>& sampled) {
  Job& job = jobs_.at(result.id);
  if (job.cancelled) {
    ASSERT_EQ(result.end, SeqEnd::kCancelled);
    ASSERT_EQ(result.num_tokens, 0);
    jobs_.erase(result.id);
    return;
  }
  ASSERT_EQ(result.num_tokens > 0, !sampled.empty());
  if (result.end == SeqEnd::kNone) {
    ASSERT_EQ(static_cast<size_t>(result.num_tokens), sampled.size());
  }
  if (result.num_tokens == 0) {
    ASSERT_EQ(result.end, SeqEnd::kNone);
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

void Scenario::abandon(const StepPlan& plan) {
  std::vector<SeqId> planned;
  kv_.spoil(plan.copies);
  for (const PlannedSeq& seq : plan.seqs) {
    kv_.spoil(seq.blocks, seq.start_pos, seq.num_tokens);
    planned.push_back(seq.id);
  }
  const bool had_copies = !plan.copies.empty();
  ASSERT_EQ(scheduler_.abandon_step(), planned);
  for (const SeqId id : planned) jobs_.erase(id);
  if (!had_copies) return;
  ++lost_caches_;
  ASSERT_EQ(scheduler_.stats().cached_blocks + scheduler_.stats().cached_host_blocks, 0);
  ASSERT_EQ(scheduler_.stats().running, 0) << "nobody holds what may not have been copied";
  for (auto& [id, job] : jobs_) {
    if (!std::exchange(job.running, false)) continue;
    job.computed = job.num_blocks = 0;
    sent_back_.insert(id);
  }
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
}

}  // namespace headrace::fake
