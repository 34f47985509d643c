#include "engine/model_loop.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <future>
#include <new>
#include <optional>
#include <utility>
#include <variant>

#include "base/check.h"

namespace headrace::internal {

namespace {

void describe_to(Ending& out, const std::exception_ptr& why) {
  try {
    std::rethrow_exception(why);
  } catch (const Error& error) {
    out.code = error.code();
    out.message = error.what();
  } catch (const std::bad_alloc&) {
    out.code = ErrorCode::kOutOfMemory;
    out.message = "out of memory";
  } catch (const std::exception& error) {
    out.message = error.what();
  } catch (...) {
    out.message = "an unknown exception";
  }
}

Ending describe(const std::exception_ptr& why) noexcept {
  Ending out;
  try {
    describe_to(out, why);
  } catch (...) {  // no memory for the message: the code says enough
  }
  return out;
}

OutputDelta to_delta(const Ending& ending) {
  OutputDelta delta;
  delta.finish_reason = ending.reason;
  delta.error_code = ending.code;
  delta.error_message = ending.message;
  return delta;
}

void deliver(RequestState& state, OutputDelta delta) noexcept {
  try {
    state.publish(std::move(delta));
  } catch (...) {  // what follows ends the request in any case
  }
}

void deliver(RequestState& state, const Ending& ending) noexcept {
  try {
    state.publish(to_delta(ending));
  } catch (...) {
    deliver(state, to_delta({ending.reason, ending.code, {}}));
  }
}

/// Ends what was handed to a loop that has failed. Those it has taken have no state any more.
void refuse(std::vector<Command>& commands, const Ending& ending) noexcept {
  for (Command& command : commands) {
    const auto* request = std::get_if<PreparedRequest>(&command);
    if (request != nullptr && request->state) deliver(*request->state, ending);
    auto* clear = std::get_if<ClearCacheCommand>(&command);
    if (clear == nullptr) continue;
    try {
      clear->done.set_value(false);
    } catch (const std::future_error&) {  // it was done before the failure
    }
  }
}

/// The end of a request that drop_unguided() has cancelled.
void end_unguided(LiveRequest& live, OutputDelta& delta) {
  HEADRACE_CHECK(live.guide && live.guide->next() != Guide::Next::kTokens);
  const bool failed = live.guide->next() == Guide::Next::kFailed;
  const Ending ending =
      failed ? describe(live.guide->failure()) : Ending{FinishReason::kStop, ErrorCode::kOk, {}};
  delta = to_delta(ending);
  delta.prompt_logprobs = std::exchange(live.prompt_logprobs, {});
}

FinishReason finish_reason(SeqEnd end) {
  switch (end) {
    case SeqEnd::kNone:
      return FinishReason::kNone;
    case SeqEnd::kStopToken:
    case SeqEnd::kStopSequence:
      return FinishReason::kStop;
    case SeqEnd::kLength:
      return FinishReason::kLength;
    case SeqEnd::kCancelled:
      return FinishReason::kAbort;
  }
  return FinishReason::kError;
}

}  // namespace

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

ModelLoop::ModelLoop(std::string name, const SchedulerConfig& config,
                     std::unique_ptr<StepRunner> runner, std::shared_ptr<ModelControl> control,
                     std::shared_ptr<Logger> logger)
    : name_(std::move(name)),
      control_(std::move(control)),
      logger_(std::move(logger)),
      runner_(std::move(runner)),
      scheduler_(std::make_unique<Scheduler>(config)),
      step_(config.max_num_batched_tokens, config.max_num_seqs) {
  update_stats();
}

void ModelLoop::warm_up() {
  const std::array<int32_t, 1> zero = {0}, one = {1};
  const std::array<SeqSlice, 1> slices = {SeqSlice{0, 1, 0, zero}};
  const TensorView logits = runner_->forward({zero, zero, one, slices, zero});
  std::array<SampleRow, 1> rows;
  rows[0].greedy = true;
  std::array<SampleResult, 1> results;
  runner_->sample(logits, rows, results);
}

void ModelLoop::reset_counters() {
  counters_ = {};
  at_start_ = scheduler_->stats();
  update_stats();
}

void ModelLoop::clear_prefix_cache() {
  scheduler_->clear_prefix_cache();
  update_stats();
}

void ModelLoop::free_memory() {
  std::unique_ptr<StepRunner> gone;
  mask_workers_.reset();
  const std::lock_guard lock(stats_mutex_);
  gone = std::move(runner_);
}

bool ModelLoop::fits(int64_t prompt_tokens, int64_t max_tokens) const {
  return scheduler_->fits(prompt_tokens, max_tokens);
}

ModelStats ModelLoop::stats() const {
  const std::lock_guard lock(stats_mutex_);
  ModelStats out = stats_;
  if (runner_ != nullptr) {  // adapters come and go beside the loop
    out.memory_bytes = runner_->memory_bytes();
    out.memory_pool_bytes = runner_->memory_pool_bytes();
  }
  return out;
}

void ModelLoop::update_stats() {
  const SchedulerStats now = scheduler_->stats();
  counters_.waiting_requests = now.waiting;
  counters_.running_requests = now.running;
  counters_.total_kv_blocks = now.total_blocks;
  counters_.free_kv_blocks = now.free_blocks;
  counters_.cached_kv_blocks = now.cached_blocks;
  counters_.preemptions = now.preemptions - at_start_.preemptions;
  counters_.interruptions = now.interruptions - at_start_.interruptions;
  counters_.prefix_hit_tokens = now.prefix_hit_tokens - at_start_.prefix_hit_tokens;
  counters_.prefix_miss_tokens = now.prefix_miss_tokens - at_start_.prefix_miss_tokens;
  counters_.mapped_bytes = runner_->mapped_bytes();
  const std::lock_guard lock(stats_mutex_);
  stats_ = counters_;
}

void ModelLoop::run() noexcept {
  try {
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
    const ModelControl::Order order = control_->take(commands_, !scheduler_->has_work());
    for (Command& command : commands_) apply(command);
    commands_.clear();
    publish();
    if (order == ModelControl::Order::kRelease) {
      end_all({FinishReason::kAbort, ErrorCode::kCancelled,
               str_cat("model '", name_, "' was released before the request finished.")});
      return publish();
    }
    if (scheduler_->has_work()) {
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
  live.lora = std::move(request.lora);
  live.sampler = std::move(request.sampler);
  live.guide = std::move(request.guide);
  live.scored_prompt = std::move(request.prompt);
  live.wants_logprobs = live.sampler->wants_logprobs();
  std::optional<SeqId> id;
  try {
    if (live.guide && !mask_workers_) {
      mask_workers_ = std::make_unique<MaskWorkers>(MaskWorkers::default_threads());
    }
    id = scheduler_->add(std::move(request.spec));
    ids_.emplace(request.state.get(), *id);
    live_.emplace(*id, std::move(live));
  } catch (...) {
    if (id) scheduler_->cancel(*id);
    ids_.erase(request.state.get());
    ++counters_.finished_requests;
    update_stats();
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
  const StepPlan plan = scheduler_->plan(start);
  note_plan(plan);
  if (!plan.empty() && compute(plan)) {
    const std::vector<CommittedSeq> committed = scheduler_->commit(step_.sampled());
    ++counters_.steps;
    collect(plan, committed);
  }
  counters_.busy_seconds += monotonic_seconds() - start;
  publish();
  if (failed_steps_ >= kMaxFailedSteps) {
    throw_error(ErrorCode::kInternal, failed_steps_, " steps in a row failed");
  }
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
    live.state->note_scheduled(scheduler_->cached_prompt_tokens(id));
    if (live.guide) ask(live.guide, std::nullopt);
  }
  planned_.clear();
  for (const PlannedSeq& seq : plan.seqs) {
    LiveRequest& live = live_.at(seq.id);
    if (live.sampler->generated() == 0) live.state->note_prefill();
    planned_.push_back(&live);
  }
  update_stats();
}

bool ModelLoop::compute(const StepPlan& plan) {
  try {
    step_.build(plan, planned_, *scheduler_);
    step_.run(*runner_, mask_workers_.get());
    counters_.mask_wait_seconds += step_.mask_wait_seconds();
    drop_unguided(plan);
    failed_steps_ = 0;
    return true;
  } catch (...) {
    const Ending ending = describe(std::current_exception());
    logger_->log(LogLevel::kError, "model '", name_, "': a step failed: ", ending.message);
    for (SeqId id : scheduler_->abandon_step()) end(id, ending);
    ++failed_steps_;
    return false;
  }
}

void ModelLoop::ask(const std::shared_ptr<Guide>& guide, std::optional<int32_t> token) {
  guide->set_due(token);
  mask_workers_->post(guide);
}

// Their guides have no token for them: what was sampled is not to be used.
void ModelLoop::drop_unguided(const StepPlan& plan) {
  for (size_t i = 0; i < plan.seqs.size(); ++i) {
    const Guide* const guide = planned_[i]->guide.get();
    if (plan.seqs[i].samples && guide != nullptr && guide->next() != Guide::Next::kTokens) {
      scheduler_->cancel(plan.seqs[i].id);
    }
  }
}

void ModelLoop::collect(const StepPlan& plan, const std::vector<CommittedSeq>& committed) {
  HEADRACE_CHECK(committed.size() == plan.seqs.size(), committed.size());
  size_t sample = 0;
  for (size_t i = 0; i < committed.size(); ++i) {
    const PlannedSeq& seq = plan.seqs[i];
    LiveRequest& live = *planned_[i];
    counters_.prompt_tokens +=
        static_cast<uint64_t>(std::clamp(seq.num_prompt_tokens - seq.start_pos, 0, seq.num_tokens));
    const size_t own_sample = sample;
    if (seq.samples) ++sample;
    const auto& [id, token, end_of_seq] = committed[i];
    if (!token && end_of_seq == SeqEnd::kNone) continue;
    OutputDelta delta;
    if (token) {
      live.sampler->append(*token);
      ++counters_.generated_tokens;
      delta.token = token;
      if (live.wants_logprobs) delta.logprobs = step_.take_logprobs(own_sample);
      delta.prompt_logprobs = std::exchange(live.prompt_logprobs, {});
      live.scored_prompt = {};
      if (live.guide && end_of_seq == SeqEnd::kNone) ask(live.guide, token);
    }
    delta.finish_reason = finish_reason(end_of_seq);
    if (end_of_seq == SeqEnd::kCancelled) end_unguided(live, delta);
    if (end_of_seq == SeqEnd::kStopToken) delta.stop_token = token.value_or(-1);
    outbox_.emplace_back(live.state, std::move(delta));
    if (end_of_seq != SeqEnd::kNone) {
      ++counters_.finished_requests;
      ids_.erase(live.state.get());
      live_.erase(id);
    }
  }
}

void ModelLoop::end(SeqId id, const Ending& ending) {
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  outbox_.emplace_back(found->second.state, to_delta(ending));
  ++counters_.finished_requests;
  ids_.erase(found->second.state.get());
  live_.erase(found);
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
    const std::lock_guard lock(stats_mutex_);
    stats_.waiting_requests = stats_.running_requests = 0;
  }
  std::vector<Command> late = control_->finish(ModelState::kFailed, ending);
  // Before anyone sees a request finished, its adapter is free.
  for (auto& [id, live] : live_) live.lora.reset();
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
