#pragma once

#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/mutex.h"
#include "engine/request/endings.h"
#include "engine/request/prepared_request.h"
#include "engine/request/request_state.h"
#include "headrace/engine.h"

namespace headrace::internal {

struct CancelCommand {
  std::shared_ptr<RequestState> request;
};

struct ClearCacheCommand {
  std::promise<bool> done;  ///< false: the loop ended first
};

using Command = std::variant<PreparedRequest, CancelCommand, ClearCacheCommand>;

/// A model's state and the commands to its loop thread, under one lock: a request is either
/// refused or reaches the loop. Shared by the engine, the loop and every request.
class ModelControl final : public RequestCanceller {
 public:
  /// What the loop is to do besides its commands.
  enum class Order { kServe, kDrain, kRelease };

  // --- any thread -----------------------------------------------------------------------------

  ModelState state() const;
  /// Why the state is kFailed.
  std::string failure() const;
  /// Whether submit() would take a request now.
  bool takes_requests() const;
  /// Hands a request to the loop; false, and the request stays what it is, unless the model is
  /// running.
  bool submit(PreparedRequest& request);
  void cancel(std::shared_ptr<RequestState> request) override;
  /// nullopt: no loop is there to do it.
  std::optional<std::future<bool>> clear_cache();
  /// For those who can't wait: before the next step, of this start or the next one.
  void clear_cache_soon();
  /// Submitted, not yet taken by the loop.
  size_t pending_requests() const;

  /// To kRunning. REQUIRES: installed or stopped.
  void begin();
  /// From running to stopping; no effect in other states.
  void drain();
  /// Waits until it isn't stopping; false if `timeout` passed first.
  bool wait_stopped(std::optional<std::chrono::nanoseconds> timeout);
  /// From now on nothing is accepted and the loop cancels what it has. Final.
  void release();

  // --- the loop thread ------------------------------------------------------------------------

  /// Replaces `out` by the commands that have come. If `idle`, sleeps until there is something to
  /// do.
  Order take(std::vector<Command>& out, bool idle);
  /// The loop is over: `state` is kStopped or kFailed; `failure` says why. Returns the commands
  /// that came too late.
  std::vector<Command> finish(ModelState state, const Ending& failure) noexcept;

 private:
  bool accepts_commands() const HEADRACE_REQUIRES(mutex_);

  mutable Mutex mutex_;
  CondVar work_;
  CondVar state_changed_;
  ModelState state_ HEADRACE_GUARDED_BY(mutex_) = ModelState::kInstalled;
  bool released_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool clear_soon_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::string failure_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<Command> commands_ HEADRACE_GUARDED_BY(mutex_);
  size_t pending_requests_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace::internal
