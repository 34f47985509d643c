#include "cpp/sched/scenario.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <set>
#include <utility>

namespace headrace::fake {

Scenario::Scenario(const SchedulerConfig& config, uint64_t seed)
    : config_(config),
      random_(seed),
      scheduler_(config),
      kv_(config),
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
  spec.identity.sequence.adapter = below(4) == 0;
  if (options.ahead && !once_in(30)) spec.ahead_from = 0;
  if (once_in(8)) {
    spec.max_tokens = 0;
    spec.ahead_from = kNeverAhead;
  }
  if (dynamic_rope_) spec.identity.sequence.rope_len = static_cast<int32_t>(spec.prompt.size());
  if (options.rests && once_in(2)) {
    spec.ready_until = static_cast<int32_t>(below(spec.prompt.size()));
    if (options.ahead) spec.ahead_from = spec.ready_until + static_cast<int32_t>(below(4));
  }
  if (options.media) {
    const auto length = static_cast<int32_t>(spec.prompt.size());
    spec.identity.media = random_media(length, options.longest_item);
  }
  spec.whole_items = options.whole_items && scheduler_.fits_item(options.longest_item);
  return spec;
}

/// None for most; else items in a few places, so that some prompts agree in all of them, and others
/// in the first.
MediaItems Scenario::random_media(int32_t prompt_len, int32_t longest) {
  if (once_in(2)) return nullptr;
  std::vector<MediaItem> items;
  for (int32_t first = 1; first + longest <= prompt_len; first += longest + 2) {
    const uint64_t digest = below(3);
    const int32_t rows = digest == 1 ? longest : 3;
    if (digest > 0) items.push_back({{0, 0, 0, digest}, first, first + rows});
  }
  return std::make_shared<const std::vector<MediaItem>>(std::move(items));
}

RopeLen Scenario::rope_len() const {
  return [this](SeqId id, int32_t position) {
    return std::max(static_cast<int32_t>(specs_.at(id).prompt.size()), position + 1);
  };
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
      ran_out_of_memory_ = true;
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
  job.alone = run_alone(spec, config_.windows.front());
  job.ready = spec.ready_until;
  const SeqId id = with_failing_allocations(options, [&] { return scheduler_.add(spec); });
  ASSERT_FALSE(jobs_.contains(id));
  specs_[id] = spec;
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
  if (options.ahead) most_steps += 2 * jobs_.size();  // one that ends may have rows of no use
  if (options.rests) most_steps += 2 * jobs_.size();  // one that comes to the front may rest once
  for (; scheduler_.has_work() && !testing::Test::HasFailure(); --most_steps) {
    ASSERT_GT(most_steps, 0u) << "no progress";
    step(options);
  }
  if (testing::Test::HasFailure()) return;
  while (!flights_.empty() && !testing::Test::HasFailure()) step(options);
  EXPECT_TRUE(jobs_.empty());
  stats_ = scheduler_.stats();
  EXPECT_EQ(stats_.free_blocks, config_.num_blocks);
  scheduler_.clear_prefix_cache();
  EXPECT_EQ(scheduler_.stats().cached_blocks + scheduler_.stats().cached_host_blocks, 0);
  EXPECT_EQ(scheduler_.stats().free_state_slots, config_.num_state_slots);
  EXPECT_EQ(scheduler_.stats().host_snapshots, 0);
}

Scenario::Flight::Flight(const StepPlan& plan_in) : plan(plan_in) {
  for (const PlannedSeq& seq : plan.seqs) {
    tokens.emplace_back(seq.tokens.begin(), seq.tokens.end());
    tables.emplace_back(seq.tables.begin(), seq.tables.end());
    saves.emplace_back(seq.saves.begin(), seq.saves.end());
  }
}

void Scenario::Flight::point() {
  for (size_t i = 0; i < plan.seqs.size(); ++i) {
    plan.seqs[i].tokens = tokens[i];
    plan.seqs[i].tables = tables[i];
    plan.seqs[i].saves = saves[i];
  }
}

/// As late as it may be, a step is computed: behind all that is planned and that comes before its
/// commit.
void Scenario::step(const Options& options) {
  now_ += 1;
  if (options.postponed) resume();
  if (flights_.empty()) plan_next(options);
  if (flights_.empty() || testing::Test::HasFatalFailure()) return;
  if (options.postponed && to_add_ > 0) postpone();
  if (options.ahead && !once_in(4)) plan_ahead(options);
  if (testing::Test::HasFatalFailure()) return;
  disturb(options);
  const std::vector<std::vector<int32_t>> sampled = compute();
  if (testing::Test::HasFatalFailure()) return;
  if (options.abandoned_steps && once_in(60)) {
    abandon();
  } else {
    commit(sampled, options);
  }
  check_stats();
  check_slots_at_rest();
}

void Scenario::plan_next(const Options& options) {
  const int32_t lacking = lacking_blocks() - scheduler_.stats().free_blocks;
  if (options.drafts) wish_drafts(options);
  if (options.rests) make_ready();
  const StepPlan plan = with_failing_allocations(options, [this] { return scheduler_.plan(now_); });
  check_expired(plan);
  check_interrupted(plan, lacking, options);
  check_preempted(plan, options);
  check_rows(plan);
  if (!jobs_.empty() && plan.empty()) {
    ASSERT_GT(scheduler_.stats().running, 0);
    for (const auto& [id, job] : jobs_) {
      // Those that are postponed may hold all blocks.
      const bool may_wait = options.postponed && scheduler_.stats().free_blocks < num_groups();
      ASSERT_TRUE(!scheduler_.next_position(id) || is_held_up(id) || may_wait)
          << id << " could go on";
    }
  }
  check_order(plan);
  check_blocks(plan);
  check_slots(plan);
  check_stats();
  if (testing::Test::HasFatalFailure() || plan.empty()) return;
  note_planned(plan);
}

void Scenario::plan_ahead(const Options& options) {
  const StepPlan plan =
      with_failing_allocations(options, [this] { return scheduler_.plan_ahead(now_); });
  check_expired(plan);
  ASSERT_TRUE(plan.interrupted.empty());
  if (!options.arm) {
    ASSERT_TRUE(plan.preempted.empty());
  }
  check_stats();
  if (plan.empty()) {
    ++given_up_;
    return;
  }
  ++ahead_;
  check_preempted(plan, options);
  check_rows(plan);
  check_order(plan);
  check_blocks(plan);
  check_slots(plan);
  ASSERT_TRUE(std::ranges::none_of(plan.seqs, [&](const PlannedSeq& seq) {
    return seq.num_drafts > 0 || seq.start_pos < jobs_.at(seq.id).spec.ahead_from;
  }));
  if (!testing::Test::HasFatalFailure()) note_planned(plan);
}

/// Of the step that runs: what some sample is not there.
void Scenario::postpone() {
  Flight& flight = flights_.front();
  for (const PlannedSeq& seq : flight.plan.seqs) {
    const auto job = jobs_.find(seq.id);
    if (!seq.samples || seq.num_drafts > 0 || job == jobs_.end() || !once_in(5)) continue;
    scheduler_.postpone(seq.id);
    flight.postponed.insert(seq.id);
    job->second.postponed = true;
    --job->second.in_flight;
    --job->second.to_come;
    ++postponed_;
  }
}

/// Sooner or later, also those that have been sent back meanwhile.
void Scenario::resume() {
  for (auto& [id, job] : jobs_) {
    if (!job.postponed || (to_add_ > 0 && once_in(2))) continue;
    scheduler_.resume(id);
    job.postponed = false;
  }
}

void Scenario::note_planned(const StepPlan& plan) {
  flights_.emplace_back(plan);
  for (const PlannedSeq& seq : plan.seqs) {
    Job& job = jobs_.at(seq.id);
    job.in_flight += seq.num_tokens;
    job.to_come += seq.samples;
  }
}

/// What comes while a step runs must not harm it.
void Scenario::disturb(const Options& options) {
  if (once_in(4)) add_request(options);
  if (options.cancellations && once_in(10)) {
    const auto& seqs = flights_[below(flights_.size())].plan.seqs;
    const SeqId chosen = seqs[below(seqs.size())].id;
    ASSERT_EQ(scheduler_.cancel(chosen), jobs_.contains(chosen));
    ASSERT_FALSE(scheduler_.cancel(chosen));
    jobs_.erase(chosen);
  }
  if (options.cancellations && once_in(20)) {
    for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
      if (job->second.in_flight > 0) continue;
      ASSERT_TRUE(scheduler_.cancel(job->first));
      jobs_.erase(job);
      break;
    }
  }
  check_stats();
}

/// Computes the step that is to be committed next.
std::vector<std::vector<int32_t>> Scenario::compute() {
  Flight& flight = flights_.front();
  flight.point();
  std::vector<SeqId> samplers;
  for (size_t i = 0; i < flight.plan.seqs.size(); ++i) {
    PlannedSeq& seq = flight.plan.seqs[i];
    if (seq.samples) samplers.push_back(seq.id);
    if (seq.drawn_by < 0) continue;
    const auto drawn_by = static_cast<size_t>(seq.drawn_by);
    EXPECT_EQ(samplers_.at(drawn_by), seq.id) << "another's token";
    flight.tokens[i].assign(1, last_drawn_.at(drawn_by));
    seq.tokens = flight.tokens[i];
  }
  const auto spec_of = [this](SeqId id) -> const SeqSpec& { return specs_.at(id); };
  kv_.copy(flight.plan.copies);
  check_states(flight.plan);
  const std::vector<uint64_t> values = run_step(flight.plan, kv_, spec_of, rope_len());
  std::vector<std::vector<int32_t>> sampled = sample(flight.plan, values);
  samplers_ = std::move(samplers);
  last_drawn_.clear();
  for (const std::vector<int32_t>& own : sampled) last_drawn_.push_back(own.front());
  return sampled;
}

/// Some rows more of some, as the engine encodes them; of the most senior that runs always all that
/// its next step needs.
void Scenario::make_ready() {
  const Job* const first = most_senior();
  for (auto& [id, job] : jobs_) {
    const std::optional<int32_t> next = scheduler_.next_position(id);
    if (!next) job.ready = job.spec.ready_until;
    if (!next || job.ready == kAlwaysReady || (&job != first && !once_in(3))) continue;
    const int32_t least = &job == first ? least_end(job.spec, *next) : *next + 1;
    job.ready = least + static_cast<int32_t>(below(10));
    if (std::cmp_greater_equal(job.ready, job.spec.prompt.size())) job.ready = kAlwaysReady;
    scheduler_.set_ready(id, job.ready);
  }
}

/// Whether it runs, and rests.
bool Scenario::is_held_up(SeqId id) const {
  const std::optional<int32_t> next = scheduler_.next_position(id);
  return next &&
         (jobs_.at(id).postponed || least_end(jobs_.at(id).spec, *next) > jobs_.at(id).ready);
}

void Scenario::wish_drafts(const Options& options) {
  const bool none = options.ahead && once_in(2);
  for (auto& [id, job] : jobs_) {
    if (!none && !once_in(2)) continue;
    job.wished = none ? 0 : static_cast<int32_t>(below(8));
    scheduler_.wish_drafts(id, job.wished);
  }
}

/// What each sequence samples, and how far its guesses, some of them wrong, are confirmed.
std::vector<std::vector<int32_t>> Scenario::sample(const StepPlan& plan,
                                                   const std::vector<uint64_t>& values) {
  std::vector<std::vector<int32_t>> out;
  for (size_t i = 0; i < plan.seqs.size(); ++i) {
    const PlannedSeq& seq = plan.seqs[i];
    if (!seq.samples) continue;
    const SeqSpec& spec = specs_.at(seq.id);
    const int32_t num_output = seq.start_pos + seq.num_tokens - seq.num_prompt_tokens;
    std::vector<int32_t>& tokens = out.emplace_back();
    tokens.push_back(choose(values[i], spec, num_output));
    bool right = true;
    // With states, the engine may use fewer.
    const auto granted = static_cast<uint64_t>(seq.num_drafts);
    const auto drafts = static_cast<int32_t>(kv_.has_states() ? below(granted + 1) : granted);
    for (int32_t d = 0; d < drafts; ++d) {
      const int32_t position = seq.start_pos + seq.num_tokens + d;
      const int32_t guess = once_in(3) ? static_cast<int32_t>(below(kVocab)) : tokens.back();
      compute_row(seq, kv_, spec, position, guess, rope_len()(seq.id, position));
      right = right && guess == tokens.back();
      if (!right) continue;
      tokens.push_back(choose(kv_.read(seq.tables, position), spec, num_output + d + 1));
      ++guessed_;
    }
  }
  return out;
}

void Scenario::commit(const std::vector<std::vector<int32_t>>& sampled, const Options& options) {
  std::vector<int32_t> tokens, counts;
  for (const std::vector<int32_t>& own : sampled) {
    tokens.insert(tokens.end(), own.begin(), own.end());
    counts.push_back(static_cast<int32_t>(own.size()));
  }
  const std::vector<CommittedSeq> committed =
      with_failing_allocations(options, [&] { return scheduler_.commit(tokens, counts); });
  const StepPlan plan = std::move(flights_.front().plan);
  const std::set<SeqId> postponed = std::move(flights_.front().postponed);
  flights_.pop_front();
  ASSERT_EQ(committed.size(), plan.seqs.size());
  auto own = sampled.begin();
  for (size_t i = 0; i < plan.seqs.size(); ++i) {
    const PlannedSeq& seq = plan.seqs[i];
    ASSERT_EQ(committed[i].id, seq.id);
    const bool is_dropped = postponed.contains(seq.id);
    if (const auto job = jobs_.find(seq.id); job != jobs_.end()) {
      job->second.computed += seq.num_tokens - is_dropped;
      job->second.in_flight -= seq.num_tokens - is_dropped;
      job->second.to_come -= seq.samples && !is_dropped;
    }
    const std::vector<int32_t> drawn = seq.samples ? *own++ : std::vector<int32_t>();
    check_committed(committed[i], is_dropped ? std::vector<int32_t>() : drawn);
  }
}

void Scenario::abandon() {
  std::vector<SeqId> planned;
  bool had_copies = false;
  for (const Flight& flight : flights_) {
    kv_.spoil(flight.plan.copies);
    had_copies = had_copies || !flight.plan.copies.empty();
    for (size_t i = 0; i < flight.plan.seqs.size(); ++i) {
      const PlannedSeq& seq = flight.plan.seqs[i];
      kv_.spoil(flight.tables[i], seq.start_pos, seq.num_tokens);
      for (const StateSave& save : flight.saves[i]) kv_.slot(save.slot) = ~uint64_t{2};
      if (seq.state_out != kZeroState) kv_.slot(seq.state_out) = ~uint64_t{2};
      if (std::ranges::count(planned, seq.id) == 0) planned.push_back(seq.id);
    }
  }
  ASSERT_EQ(scheduler_.abandon_step(), planned);
  for (const SeqId id : planned) jobs_.erase(id);
  flights_.clear();
  if (!had_copies) return;
  ++lost_caches_;
  ASSERT_EQ(scheduler_.stats().cached_blocks + scheduler_.stats().cached_host_blocks, 0);
  ASSERT_EQ(scheduler_.stats().running, 0) << "nobody holds what may not have been copied";
  for (auto& [id, job] : jobs_) {
    if (!std::exchange(job.running, false)) continue;
    job.computed = job.num_columns = 0;
    job.ready = job.spec.ready_until;
    sent_back_.insert(id);
  }
}

}  // namespace headrace::fake
