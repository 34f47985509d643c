#include "engine/loop/model_control.h"

#include <utility>

#include "base/check.h"
#include "engine/request/timed_wait.h"

namespace headrace::internal {

ModelState ModelControl::state() const {
  const MutexLock lock(mutex_);
  return state_;
}

std::string ModelControl::failure() const {
  const MutexLock lock(mutex_);
  return failure_;
}

size_t ModelControl::pending_requests() const {
  const MutexLock lock(mutex_);
  return pending_requests_;
}

bool ModelControl::accepts_commands() const {
  return state_ == ModelState::kRunning || state_ == ModelState::kStopping;
}

bool ModelControl::takes_requests() const {
  const MutexLock lock(mutex_);
  return state_ == ModelState::kRunning && !released_;
}

bool ModelControl::submit(PreparedRequest& request) {
  {
    const MutexLock lock(mutex_);
    if (state_ != ModelState::kRunning || released_) return false;
    commands_.emplace_back(std::move(request));
    ++pending_requests_;
  }
  work_.notify_one();
  return true;
}

void ModelControl::cancel(std::shared_ptr<RequestState> request) {
  {
    const MutexLock lock(mutex_);
    if (!accepts_commands()) return;
    commands_.emplace_back(CancelCommand{std::move(request)});
  }
  work_.notify_one();
}

std::optional<std::future<bool>> ModelControl::clear_cache() {
  ClearCacheCommand command;
  auto done = command.done.get_future();
  {
    const MutexLock lock(mutex_);
    if (!accepts_commands()) return std::nullopt;
    commands_.emplace_back(std::move(command));
  }
  work_.notify_one();
  return done;
}

void ModelControl::clear_cache_soon() {
  {
    const MutexLock lock(mutex_);
    clear_soon_ = true;
  }
  work_.notify_one();
}

void ModelControl::begin() {
  const MutexLock lock(mutex_);
  HEADRACE_CHECK(state_ == ModelState::kInstalled || state_ == ModelState::kStopped);
  state_ = ModelState::kRunning;
}

void ModelControl::drain() {
  {
    const MutexLock lock(mutex_);
    if (state_ != ModelState::kRunning) return;
    state_ = ModelState::kStopping;
  }
  work_.notify_one();
}

bool ModelControl::wait_stopped(std::optional<std::chrono::nanoseconds> timeout) {
  MutexLock lock(mutex_);
  return wait_until_ready(state_changed_, lock, timeout, [this]() HEADRACE_REQUIRES(mutex_) {
    return state_ != ModelState::kStopping;
  });
}

void ModelControl::release() {
  {
    const MutexLock lock(mutex_);
    released_ = true;
  }
  work_.notify_one();
}

ModelControl::Order ModelControl::take(std::vector<Command>& out, bool idle) {
  out.clear();
  MutexLock lock(mutex_);
  if (idle) {
    while (commands_.empty() && !clear_soon_ && !released_ && state_ != ModelState::kStopping) {
      work_.wait(lock);
    }
  }
  out.swap(commands_);
  if (std::exchange(clear_soon_, false)) out.emplace_back(ClearCacheCommand{});
  pending_requests_ = 0;
  if (released_) return Order::kRelease;
  return state_ == ModelState::kStopping ? Order::kDrain : Order::kServe;
}

std::vector<Command> ModelControl::finish(ModelState state, const Ending& failure) noexcept {
  std::vector<Command> late;
  {
    const MutexLock lock(mutex_);
    state_ = state;
    try {
      failure_ = failure.message;
    } catch (...) {  // no memory for the reason; the state says enough
    }
    late.swap(commands_);
    pending_requests_ = 0;
  }
  state_changed_.notify_all();
  return late;
}

}  // namespace headrace::internal
