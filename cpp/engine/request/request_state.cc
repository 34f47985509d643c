#include "engine/request/request_state.h"

#include <utility>

#include "engine/request/timed_wait.h"

namespace headrace::internal {

namespace {

template <class Clock>
double seconds() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// One line of time for all requests, whatever is done to the system's clock meanwhile.
double now() {
  static const double offset =
      seconds<std::chrono::system_clock>() - seconds<std::chrono::steady_clock>();
  return offset + seconds<std::chrono::steady_clock>();
}

}  // namespace

RequestState::RequestState(std::string id, uint64_t seed, int32_t prompt_tokens)
    : id_(std::move(id)), seed_(seed) {
  stats_.arrival_time = now();
  stats_.prompt_tokens = prompt_tokens;
}

bool RequestState::has_output() const noexcept {
  return !pending_.token_ids.empty() || !pending_.prompt_logprobs.empty() ||
         (pending_.finished && !last_taken_);
}

Output RequestState::take() {
  Output out;
  out.token_ids.swap(pending_.token_ids);
  out.logprobs.swap(pending_.logprobs);
  out.prompt_logprobs.swap(pending_.prompt_logprobs);
  out.pooled.swap(pending_.pooled);
  out.finished = pending_.finished;
  out.finish_reason = pending_.finish_reason;
  out.stop_token = pending_.stop_token;
  out.stop_sequence = pending_.stop_sequence;
  out.error_code = pending_.error_code;
  out.error_message = pending_.error_message;
  last_taken_ = pending_.finished;
  return out;
}

std::optional<Output> RequestState::get(std::optional<std::chrono::nanoseconds> timeout) {
  MutexLock lock(mutex_);
  const auto ready = [this]()
                         HEADRACE_REQUIRES(mutex_) { return has_output() || pending_.finished; };
  if (!wait_until_ready(output_came_, lock, timeout, ready)) return std::nullopt;
  return take();
}

std::optional<Output> RequestState::get_nowait() {
  const MutexLock lock(mutex_);
  if (!has_output()) return std::nullopt;
  return take();
}

RequestStatus RequestState::status() const {
  const MutexLock lock(mutex_);
  return status_;
}

FinishReason RequestState::finish_reason() const {
  const MutexLock lock(mutex_);
  return pending_.finish_reason;
}

size_t RequestState::generated_length() const {
  const MutexLock lock(mutex_);
  return static_cast<size_t>(stats_.generated_tokens);
}

RequestStats RequestState::stats() const {
  const MutexLock lock(mutex_);
  return stats_;
}

bool RequestState::wait(std::optional<std::chrono::nanoseconds> timeout) const {
  MutexLock lock(mutex_);
  return wait_until_ready(finished_, lock, timeout,
                          [this]() HEADRACE_REQUIRES(mutex_) { return pending_.finished; });
}

void RequestState::set_replica(size_t index, std::weak_ptr<RequestCanceller> replica) {
  const MutexLock lock(mutex_);
  stats_.replica = static_cast<int32_t>(index);
  replica_ = std::move(replica);
}

void RequestState::note_media(int32_t image_tokens, int32_t video_tokens) {
  const MutexLock lock(mutex_);
  stats_.image_tokens = image_tokens;
  stats_.video_tokens = video_tokens;
}

void RequestState::note_scheduled(int32_t cached_tokens, int32_t host_cached_tokens) {
  const MutexLock lock(mutex_);
  stats_.first_scheduled_time = now();
  stats_.cached_tokens = cached_tokens;
  stats_.host_cached_tokens = host_cached_tokens;
}

void RequestState::note_prefill() {
  const MutexLock lock(mutex_);
  if (status_ == RequestStatus::kWaiting) status_ = RequestStatus::kPrefill;
}

void RequestState::note_preempted() {
  const MutexLock lock(mutex_);
  ++stats_.preemptions;
  if (status_ == RequestStatus::kPrefill) status_ = RequestStatus::kWaiting;
}

void RequestState::apply(OutputDelta& delta) {
  for (auto& entry : delta.prompt_logprobs) pending_.prompt_logprobs.push_back(std::move(entry));
  if (!delta.tokens.empty()) {
    const double time = now();
    auto& ids = pending_.token_ids;
    ids.insert(ids.end(), delta.tokens.begin(), delta.tokens.end());
    for (auto& entry : delta.logprobs) pending_.logprobs.push_back(std::move(entry));
    if (stats_.generated_tokens == 0) stats_.first_token_time = time;
    stats_.generated_tokens += static_cast<int32_t>(delta.tokens.size());
    stats_.last_token_time = time;
    status_ = RequestStatus::kGenerating;
  }
  if (delta.finish_reason != FinishReason::kNone) {
    pending_.finished = true;
    pending_.pooled = std::move(delta.pooled);
    pending_.finish_reason = delta.finish_reason;
    pending_.stop_token = delta.stop_token;
    pending_.stop_sequence = delta.stop_sequence;
    pending_.error_code = delta.error_code;
    pending_.error_message = std::move(delta.error_message);
    status_ = RequestStatus::kFinished;
    stats_.finished_time = now();
  }
}

void RequestState::publish(OutputDelta delta) {
  MutexLock lock(mutex_);
  if (pending_.finished) return;
  apply(delta);
  const bool finished = pending_.finished;
  const bool has_callback = callback_ != nullptr;
  callback_due_ = has_callback;
  const auto listeners = finished ? std::exchange(listeners_, nullptr) : listeners_;
  lock.unlock();
  if (finished) {
    output_came_.notify_all();
    finished_.notify_all();
  } else {
    output_came_.notify_one();
  }
  if (listeners) {
    for (const auto& [listener, only_end] : *listeners) {
      if (finished || !only_end) listener->notify();
    }
  }
  if (!has_callback) return;
  lock.lock();
  run_callback();
}

void RequestState::add_listener(std::shared_ptr<OutputListener> listener, bool only_end) {
  bool due = false;
  {
    const MutexLock lock(mutex_);
    due = pending_.finished || (!only_end && has_output());
    if (!pending_.finished) {
      auto changed =
          listeners_ ? std::make_shared<Listeners>(*listeners_) : std::make_shared<Listeners>();
      changed->push_back({listener, only_end});
      listeners_ = std::move(changed);
    }
  }
  if (due) listener->notify();
}

void RequestState::remove_listener(const OutputListener& listener) {
  const MutexLock lock(mutex_);
  if (!listeners_) return;
  auto changed = std::make_shared<Listeners>(*listeners_);
  std::erase_if(*changed, [&](const Listening& each) { return each.listener.get() == &listener; });
  listeners_ = changed->empty() ? nullptr : std::move(changed);
}

// Whoever finds a call in progress leaves the next one to the thread that makes it: calls never
// overlap and the loop thread never waits for a callback that another thread runs.
void RequestState::run_callback() {
  if (running_callback_) return;
  while (callback_due_ && callback_) {
    callback_due_ = false;
    // After the last output there is nothing to call for: what the callback holds can go.
    Callback call = pending_.finished ? std::exchange(callback_, nullptr) : callback_;
    running_callback_ = call;
    running_thread_ = std::this_thread::get_id();
    mutex_.unlock();
    try {
      (*call)();
    } catch (...) {  // it must not throw; one that does harms nobody else
    }
    mutex_.lock();
    Callback done = std::exchange(running_callback_, nullptr);
    running_thread_ = {};
    callback_done_.notify_all();
    mutex_.unlock();
    call.reset();
    done.reset();
    mutex_.lock();
    if (running_callback_) return;
  }
}

void RequestState::on_output(std::function<void()> callback) {
  Callback fresh, old, running;  // outlive the lock: their destructors may run foreign code
  if (callback) fresh = std::make_shared<std::function<void()>>(std::move(callback));
  MutexLock lock(mutex_);
  old = std::exchange(callback_, fresh);
  if (running_thread_ != std::this_thread::get_id()) {
    running = running_callback_;
    while (running && running_callback_ == running) callback_done_.wait(lock);
  }
  if (fresh && callback_ == fresh && has_output()) {
    callback_due_ = true;
    run_callback();
  }
}

}  // namespace headrace::internal
