#include "engine/loop/model_loop.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <variant>

#include "base/check.h"
#include "engine/loop/loop_ends.h"
#include "engine/loop/loop_stats.h"
#include "engine/loop/warm_up.h"
#include "engine/request/endings.h"

namespace headrace::internal {

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

ModelLoop::ModelLoop(Parts parts, std::shared_ptr<ModelControl> control,
                     std::shared_ptr<Logger> logger)
    : name_(std::move(parts.name)),
      replica_(parts.replica),
      control_(std::move(control)),
      logger_(std::move(logger)),
      runner_(std::move(parts.runner)),
      config_(parts.scheduler),
      scheduler_(std::make_unique<Scheduler>(config_)),
      speculator_(std::move(parts.speculator)),
      first_vision_token_(parts.first_vision_token),
      rounds_{Round(config_, first_vision_token_), Round(config_, first_vision_token_)} {
  if (parts.encoder.limits.refusal.empty()) {
    encoder_ = std::make_unique<EncoderStage>(std::move(parts.encoder), *runner_);
  }
  update_stats();
}

void ModelLoop::warm_up() { internal::warm_up(*runner_, config_, speculator_ != nullptr); }

void ModelLoop::reset_counters() {
  counters_ = {};
  at_start_ = scheduler_->stats();
  if (encoder_) {
    encoded_at_start_ = encoder_->encoded_rows();
    found_at_start_ = encoder_->found_rows();
  }
  update_stats();
}

void ModelLoop::clear_prefix_cache() {
  scheduler_->clear_prefix_cache();
  update_stats();
}

void ModelLoop::free_memory() {
  std::unique_ptr<StepRunner> gone;
  mask_workers_.reset();
  encoder_.reset();
  speculator_.reset();
  const MutexLock lock(stats_mutex_);
  gone = std::move(runner_);
}

void ModelLoop::forget_counters() {
  const MutexLock lock(stats_mutex_);
  stats_ = {.mapped_bytes = stats_.mapped_bytes};
}

ModelStats ModelLoop::stats() const {
  const MutexLock lock(stats_mutex_);
  ModelStats out = stats_;
  if (runner_ != nullptr) {  // adapters come and go beside the loop
    out.memory_bytes = runner_->memory_bytes();
    out.memory_pool_bytes = runner_->memory_pool_bytes();
  }
  return out;
}

void ModelLoop::update_stats() {
  const SchedulerStats now = scheduler_->stats();
  note_scheduler(now, at_start_, counters_);
  counters_.mapped_bytes = runner_->mapped_bytes();
  if (encoder_) {
    counters_.encoded_tokens = encoder_->encoded_rows() - encoded_at_start_;
    counters_.encoder_hit_tokens = encoder_->found_rows() - found_at_start_;
    counters_.encoder_cache_bytes = encoder_->bytes();
  }
  const MutexLock lock(stats_mutex_);
  stats_ = counters_;
}

void ModelLoop::run() noexcept {
  try {
    runner_->enter_thread();
    if (speculator_ != nullptr) speculator_->enter_thread();
    serve();
    // Later submits were refused; a late cancel has nothing left to cancel.
    for (Command& late : control_->finish(ModelState::kStopped, {})) {
      if (auto* clear = std::get_if<ClearCacheCommand>(&late)) clear->done.set_value(false);
    }
  } catch (...) {
    fail(std::current_exception());
  }
}

void ModelLoop::serve() {
  for (;;) {
    const bool is_idle = !scheduler_->has_work() && !round_->open;
    const ModelControl::Order order = control_->take(commands_, is_idle);
    for (Command& command : commands_) apply(command);
    commands_.clear();
    publish();
    if (order == ModelControl::Order::kRelease) {
      end_all({FinishReason::kAbort, ErrorCode::kCancelled,
               str_cat("model '", name_, "' was released before the request finished.")});
      drop_rounds();
      return publish();
    }
    if (scheduler_->has_work() || round_->open) {
      step();
    } else if (order == ModelControl::Order::kDrain) {
      return;
    }
  }
}

void ModelLoop::apply(Command& command) {
  if (auto* request = std::get_if<PreparedRequest>(&command)) {
    admit(std::move(*request));
  } else if (auto* cancelled = std::get_if<CancelCommand>(&command)) {
    cancel(*cancelled->request);
  } else if (auto* clear = std::get_if<ClearCacheCommand>(&command)) {
    scheduler_->clear_prefix_cache();
    update_stats();
    clear->done.set_value(true);
  }
}

void ModelLoop::admit(PreparedRequest request) {
  LiveRequest live;
  live.state = request.state;
  live.booking = std::move(request.booking);
  live.lora = std::move(request.lora);
  if (live.lora) live.adapter = live.lora->adapters[replica_];
  live.sampler = std::move(request.sampler);
  live.guide = std::move(request.guide);
  live.pooler = std::move(request.pooler);
  live.media = std::move(request.media);
  live.scored_prompt = std::move(request.prompt);
  live.wants_logprobs = live.sampler->wants_logprobs();
  const int32_t priority = request.spec.priority;
  live.ahead_from = request.spec.ahead_from = ahead_from(live);
  std::optional<SeqId> id;
  try {
    if (live.guide && !mask_workers_) {
      mask_workers_ = std::make_unique<MaskWorkers>(MaskWorkers::default_threads());
    }
    if (speculator_) {
      const bool has_axes = live.media && !live.media->rope().is_plain();
      live.speculation =
          speculator_->start(request.spec.prompt, has_axes ? &live.media->rope() : nullptr);
    }
    id = scheduler_->add(std::move(request.spec));
    ids_.emplace(request.state.get(), *id);
    if (live.media) encoder_->add(*id, priority, *live.media);
    live_.emplace(*id, std::move(live));
  } catch (...) {
    if (id) {
      scheduler_->cancel(*id);
      if (encoder_) encoder_->remove(*id);
    }
    ids_.erase(request.state.get());
    ++counters_.finished_requests;
    update_stats();
    live.adapter.reset();
    live.lora.reset();
    deliver(*request.state, describe(std::current_exception()));
  }
}

void ModelLoop::cancel(const RequestState& request) {
  const auto found = ids_.find(&request);
  if (found == ids_.end()) return;
  const SeqId id = found->second;
  scheduler_->cancel(id);
  end(id, {FinishReason::kAbort, ErrorCode::kCancelled, "the request was cancelled."});
}

void ModelLoop::step() {
  const double start = monotonic_seconds();
  Round& now = *round_;
  Round& next = next_round();
  resume_postponed();
  if (!now.open) {
    if (encoder_) encoder_->prepare(*scheduler_);
    open(now, scheduler_->plan(start));
  }
  const bool has_rows = now.open;
  if (now.open && now.step.begun() && !now.failure) {
    begin_draws(now);
    if (!now.failure) open(next, scheduler_->plan_ahead(monotonic_seconds()));
  }
  if (now.open && compute(now)) {
    const Step& step = now.step;
    const std::vector<CommittedSeq> committed = scheduler_->commit(step.tokens(), step.counts());
    ++counters_.steps;
    collect(now, committed);
    now.open = false;
    round_ = &next;
  }
  if (encoder_ && !round_->open) encode(has_rows);
  if (!has_rows) wait_for_postponed();
  counters_.busy_seconds += monotonic_seconds() - start;
  publish();
  if (runner_->lost()) throw_error(ErrorCode::kDevice, "its device has failed for good");
  if (failed_steps_ >= kMaxFailedSteps) {
    throw_error(ErrorCode::kInternal, failed_steps_, " steps in a row failed");
  }
}

void ModelLoop::encode(bool others_run) {
  auto failure = encoder_->work(*scheduler_, others_run);
  if (!failure) return;
  const Ending ending = describe_failure(*failure);
  logger_->log(LogLevel::kError, "model '", name_, "': encoding failed: ", ending.message);
  scheduler_->cancel(failure->id);
  end(failure->id, ending);
}

void ModelLoop::note_plan(const StepPlan& plan) {
  for (SeqId id : plan.expired) {
    end(id, {FinishReason::kError, ErrorCode::kDeadlineExceeded,
             "the request's timeout passed before it finished."});
  }
  for (SeqId id : plan.interrupted) {
    end(id, {FinishReason::kInterrupted, ErrorCode::kOutOfMemory,
             "no KV block was left and the model's out_of_blocks ends requests then: what has been "
             "generated is valid; submit the rest again, or give the KV cache more memory."});
  }
  for (SeqId id : plan.preempted) live_.at(id).state->note_preempted();
  for (SeqId id : plan.first_scheduled) {
    const LiveRequest& live = live_.at(id);
    live.state->note_scheduled(scheduler_->cached_prompt_tokens(id),
                               scheduler_->host_prompt_tokens(id));
    if (live.guide) mask_workers_->ask(live.guide, std::nullopt);
  }
  planned_.clear();
  for (const PlannedSeq& seq : plan.seqs) {
    LiveRequest& live = live_.at(seq.id);
    if (live.sampler->generated() == 0) live.state->note_prefill();
    planned_.push_back(&live);
  }
  update_stats();
}

/// What fails is found again by compute(), when its turn has come.
void ModelLoop::open(Round& round, StepPlan plan) {
  note_plan(plan);
  if (plan.empty()) return;
  round.open = true;
  round.plan = std::move(plan);
  round.failure = nullptr;
  try {
    if (speculator_) fill_drafts(round.plan);
    const Step& before = &round == round_ ? next_round().step : round_->step;
    round.step.build(round.plan, planned_, *scheduler_, before.sampled());
    if (!round.plan.copies.empty()) runner_->copy_blocks(round.plan.copies);
    if (round.step.can_begin()) {
      round.begun_at = monotonic_seconds();
      round.step.begin(*runner_);
    }
  } catch (...) {
    round.failure = std::current_exception();
  }
}

bool ModelLoop::compute(Round& round) {
  Step& step = round.step;
  try {
    if (round.failure) std::rethrow_exception(round.failure);
    if (step.begun()) {
      step.finish(*runner_);
      note_time(round);
    } else {
      step.run(*runner_, mask_workers_.get());
    }
    counters_.mask_wait_seconds += step.mask_wait_seconds();
    if (speculator_) {
      note_drafts(round);
      take_rows(round);
    }
    drop_hopeless(round);
    failed_steps_ = 0;
    return true;
  } catch (...) {
    const Ending ending = describe(std::current_exception());
    logger_->log(LogLevel::kError, "model '", name_, "': a step failed: ", ending.message);
    for (SeqId id : scheduler_->abandon_step()) end(id, ending);
    drop_rounds();
    ++failed_steps_;
    return false;
  }
}

/// Waits for what has begun; what it gives is nobody's.
void ModelLoop::drop_rounds() noexcept {
  for (Round* round : {round_, &next_round()}) {
    round->step.drop(*runner_);
    round->open = false;
  }
}

void ModelLoop::fill_drafts(const StepPlan& plan) {
  guessing_.clear();
  for (size_t i = 0; i < plan.seqs.size(); ++i) {
    const LiveRequest& live = *planned_[i];
    guessing_.push_back({&plan.seqs[i], live.speculation.get(), live.sampler.get()});
  }
  note_guessing(speculator_->fill(guessing_));
}

void ModelLoop::note_guessing(const std::string& failure) {
  if (failure.empty()) return;
  logger_->log(LogLevel::kWarning, "model '", name_, "': guessing tokens failed: ", failure);
}

void ModelLoop::note_drafts(const Round& round) {
  const StepPlan& plan = round.plan;
  const Step& step = round.step;
  const auto decodes = std::ranges::count_if(
      plan.seqs, [](const PlannedSeq& seq) { return seq.samples && seq.num_tokens == 1; });
  speculator_->note_step(step.num_rows(), static_cast<int32_t>(decodes));
  for (const SampledSeq& seq : step.sampled()) {
    speculator_->note_result(*seq.live->speculation, seq.num_drafts, seq.count - 1);
    counters_.drafted_tokens += static_cast<uint64_t>(seq.num_drafts);
  }
}

// What was drawn is known, but not part of the outputs yet.
void ModelLoop::take_rows(const Round& round) {
  const Step& step = round.step;
  computed_.clear();
  auto next_sampled = step.sampled().begin();
  std::span<const int32_t> tokens = step.tokens();
  for (size_t i = 0; i < round.plan.seqs.size(); ++i) {
    const bool samples = round.plan.seqs[i].samples;
    const SampledSeq* const sampled = samples ? &*next_sampled++ : nullptr;
    const size_t count = samples ? static_cast<size_t>(sampled->count) : 0;
    const std::span<const int32_t> drawn = tokens.first(count);
    tokens = tokens.subspan(count);
    if (samples && (sampled->is_unguided || sampled->not_finite)) continue;  // it ends
    computed_.push_back({planned_[i]->speculation.get(), &step.slices()[i], drawn});
  }
  note_guessing(speculator_->take_rows(computed_));
}

// Their guides have no token for them, or their logits are not finite: what was sampled is not to
// be used.
void ModelLoop::drop_hopeless(const Round& round) {
  auto next_sampled = round.step.sampled().begin();
  for (const PlannedSeq& seq : round.plan.seqs) {
    const SampledSeq* const sampled = seq.samples ? &*next_sampled++ : nullptr;
    const auto found = live_.find(seq.id);
    if (found == live_.end()) continue;  // it ended while this step was under way
    LiveRequest& live = found->second;
    live.not_finite = live.not_finite || (sampled != nullptr && sampled->not_finite);
    if (live.not_finite || (sampled != nullptr && sampled->is_unguided)) {
      scheduler_->cancel(seq.id);
    }
  }
}

void ModelLoop::collect(Round& round, const std::vector<CommittedSeq>& committed) {
  const StepPlan& plan = round.plan;
  HEADRACE_CHECK(committed.size() == plan.seqs.size(), committed.size());
  auto next_sampled = round.step.sampled().begin();
  for (size_t i = 0; i < committed.size(); ++i) {
    const PlannedSeq& seq = plan.seqs[i];
    counters_.prompt_tokens +=
        static_cast<uint64_t>(std::clamp(seq.num_prompt_tokens - seq.start_pos, 0, seq.num_tokens));
    const SampledSeq* const sampled = seq.samples ? &*next_sampled++ : nullptr;
    const CommittedSeq& result = committed[i];
    const auto found = live_.find(result.id);
    if (found == live_.end()) continue;  // it ended while this step was under way
    if (result.num_tokens == 0 && result.end == SeqEnd::kNone) continue;
    LiveRequest& live = found->second;
    OutputDelta delta;
    if (result.num_tokens > 0) take_tokens(round, *sampled, result, live, delta);
    delta.finish_reason = finish_reason(result.end);
    if (result.end == SeqEnd::kCancelled) end_hopeless(live, delta);
    if (result.end == SeqEnd::kPrompt) delta.pooled = live.pooler->take();
    if (result.end == SeqEnd::kStopToken) delta.stop_token = result.token.value_or(-1);
    delta.stop_sequence = result.stop_sequence;
    outbox_.emplace_back(live.state, std::move(delta));
    if (result.end != SeqEnd::kNone) {
      forget(found);
    }
  }
}

/// What the scheduler has made part of the output.
void ModelLoop::take_tokens(Round& round, const SampledSeq& sampled, const CommittedSeq& committed,
                            LiveRequest& live, OutputDelta& delta) {
  for (int32_t nth = 0; nth < committed.num_tokens; ++nth) {
    delta.tokens.push_back(round.step.token(sampled, nth));
    if (live.wants_logprobs) delta.logprobs.push_back(round.step.take_logprobs(sampled, nth));
  }
  live.booking.prompt_done();
  counters_.generated_tokens += delta.tokens.size();
  const int32_t confirmed = std::min(committed.num_tokens, sampled.count - 1);
  counters_.accepted_tokens += static_cast<uint64_t>(confirmed);
  delta.prompt_logprobs = std::exchange(live.prompt_logprobs, {});
  live.scored_prompt = {};
  if (committed.end == SeqEnd::kNone) go_on(sampled, committed.id, live, delta.tokens);
}

/// `tokens` are new, and more are to come.
void ModelLoop::go_on(const SampledSeq& sampled, SeqId id, LiveRequest& live,
                      std::span<const int32_t> tokens) {
  live.sampler->append(tokens.back());
  if (live.guide && !sampled.guide_is_ahead) mask_workers_->ask(live.guide, tokens.back());
  if (!live.speculation) return;
  Speculator::append(*live.speculation, tokens);
  scheduler_->wish_drafts(id, speculator_->propose(*live.speculation));
}

void ModelLoop::end(SeqId id, const Ending& ending) {
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  outbox_.emplace_back(found->second.state, to_delta(ending));
  forget(found);
}

/// Of a request that has ended.
void ModelLoop::forget(std::unordered_map<SeqId, LiveRequest>::iterator live) {
  ++counters_.finished_requests;
  if (live->second.media) encoder_->remove(live->first);
  for (Round& round : rounds_) round.step.forget(live->second);
  ids_.erase(live->second.state.get());
  live_.erase(live);
}

void ModelLoop::end_all(const Ending& ending) {
  while (!live_.empty()) {
    const SeqId id = live_.begin()->first;
    scheduler_->cancel(id);
    end(id, ending);
  }
}

// Statistics first: who sees a request finished sees its blocks free.
void ModelLoop::publish() {
  update_stats();
  while (published_ < outbox_.size()) {
    auto& [state, delta] = outbox_[published_++];
    state->publish(std::move(delta));
  }
  outbox_.clear();
  published_ = 0;
}

void ModelLoop::fail(const std::exception_ptr& why) noexcept {
  Ending ending;
  try {
    ending = describe(why);
    ending.message = str_cat("model '", name_, "' has failed: ", ending.message);
    logger_->log(LogLevel::kError, ending.message);
  } catch (...) {  // out of memory, most likely: an error without a message is better than none
    ending.message.clear();
  }
  {
    const MutexLock lock(stats_mutex_);
    stats_.waiting_requests = stats_.running_requests = 0;
    stats_.encoder_cache_bytes = 0;
  }
  std::vector<Command> late = control_->finish(ModelState::kFailed, ending);
  encoder_.reset();
  // Before anyone sees a request finished, its adapter is free.
  for (Round& round : rounds_) round.step.let_go_of_adapters();
  for (auto& [id, live] : live_) {
    live.adapter.reset();
    live.lora.reset();
  }
  for (Command& command : late) {
    if (auto* request = std::get_if<PreparedRequest>(&command)) request->lora.reset();
  }
  for (; published_ < outbox_.size(); ++published_) {
    auto& [state, delta] = outbox_[published_];
    deliver(*state, std::move(delta));
  }
  for (auto& [state, delta] : outbox_) {
    if (!ids_.contains(state.get())) deliver(*state, ending);
  }
  for (auto& [id, live] : live_) deliver(*live.state, ending);
  refuse(commands_, ending);
  refuse(late, ending);
  commands_.clear();
  outbox_.clear();
  live_.clear();
  ids_.clear();
}

}  // namespace headrace::internal
