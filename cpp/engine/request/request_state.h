#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/home_process.h"
#include "base/mutex.h"
#include "headrace/result_queue.h"

namespace headrace::internal {

class RequestState;

/// Who computes a request, as the request's owner knows it.
class RequestCanceller {
 public:
  virtual ~RequestCanceller() = default;
  /// Ends the request soon. Any thread.
  virtual void cancel(std::shared_ptr<RequestState> request) = 0;
};

/// What one step, or the end, adds to a request's output.
struct OutputDelta {
  std::vector<int32_t> tokens;
  std::vector<PositionLogprobs> logprobs;  ///< of the tokens; empty if not wanted
  std::vector<PositionLogprobs> prompt_logprobs;
  std::vector<float> pooled;                         ///< with the end
  FinishReason finish_reason = FinishReason::kNone;  ///< other than kNone: this is the last
  int32_t stop_token = -1, stop_sequence = -1;
  ErrorCode error_code = ErrorCode::kOk;
  std::string error_message;
};

/// Told when a request has output, by the thread that publishes it, with no lock held. Calls may
/// overlap, and one may come just after the listener has been removed.
class OutputListener {
 public:
  virtual ~OutputListener() = default;
  /// Must be quick.
  virtual void notify() noexcept = 0;
};

/// The meeting point of a request's owner and its model's loop thread; shared by handles, queues
/// and loop, so that it outlives each of them.
class RequestState {
 public:
  /// Arrives now.
  RequestState(std::string id, uint64_t seed, int32_t prompt_tokens);

  const std::string& id() const noexcept { return id_; }
  uint64_t seed() const noexcept { return seed_; }

  /// Throws in a fork()ed child. What follows would never return there.
  void check_process() const { home_.check("request"); }

  // --- any thread -----------------------------------------------------------------------------

  /// See ResultQueue: nullopt timeouts wait for ever.
  std::optional<Output> get(std::optional<std::chrono::nanoseconds> timeout);
  std::optional<Output> get_nowait();
  RequestStatus status() const;
  FinishReason finish_reason() const;
  size_t generated_length() const;
  RequestStats stats() const;
  void on_output(std::function<void()> callback);
  /// Notifies it of all output from now on, or of the end alone; at once if there is some to take
  /// or the request has finished. Kept until the end or remove_listener().
  void add_listener(std::shared_ptr<OutputListener> listener, bool only_end);
  void remove_listener(const OutputListener& listener);
  bool wait(std::optional<std::chrono::nanoseconds> timeout) const;

  // --- the loop thread (or whoever ends a request that never reached it) -----------------------

  /// Which replica computes it. Before it is handed to the loop, which may die before this object.
  void set_replica(size_t index, std::weak_ptr<RequestCanceller> replica);
  /// Rows of its prompt that are images' and clips'. Before it is handed to the loop.
  void note_media(int32_t image_tokens, int32_t video_tokens);
  /// Its first tokens enter a step.
  void note_scheduled(int32_t cached_tokens, int32_t host_cached_tokens);
  /// Its prompt is being computed, for the first time or again.
  void note_prefill();
  void note_preempted();
  /// Makes the delta visible, wakes readers, then runs the callback with no lock held. Does
  /// nothing once finished.
  void publish(OutputDelta delta);

  /// Its replica; null if that is gone.
  std::shared_ptr<RequestCanceller> replica() const { return replica_.lock(); }

 private:
  using Callback = std::shared_ptr<std::function<void()>>;
  struct Listening {
    std::shared_ptr<OutputListener> listener;
    bool only_end;
  };
  using Listeners = std::vector<Listening>;

  bool has_output() const noexcept HEADRACE_REQUIRES(mutex_);
  Output take() HEADRACE_REQUIRES(mutex_);
  void apply(OutputDelta& delta) HEADRACE_REQUIRES(mutex_);
  void run_callback() HEADRACE_REQUIRES(mutex_);

  const std::string id_;
  const uint64_t seed_;
  std::weak_ptr<RequestCanceller> replica_;  // unchanged once anyone else has this object
  const HomeProcess home_;

  mutable Mutex mutex_;  // never held in a callback
  mutable CondVar output_came_;
  mutable CondVar finished_;
  // Not yet taken; `finished` and the reason stay once set.
  Output pending_ HEADRACE_GUARDED_BY(mutex_);
  // The output that said `finished` has been handed out.
  bool last_taken_ HEADRACE_GUARDED_BY(mutex_) = false;
  RequestStatus status_ HEADRACE_GUARDED_BY(mutex_) = RequestStatus::kWaiting;
  RequestStats stats_ HEADRACE_GUARDED_BY(mutex_);

  // Replaced when it changes: calls hold no lock.
  std::shared_ptr<const Listeners> listeners_ HEADRACE_GUARDED_BY(mutex_);

  Callback callback_ HEADRACE_GUARDED_BY(mutex_);
  bool callback_due_ HEADRACE_GUARDED_BY(mutex_) = false;
  // The one being called, by running_thread_.
  Callback running_callback_ HEADRACE_GUARDED_BY(mutex_);
  std::thread::id running_thread_ HEADRACE_GUARDED_BY(mutex_);
  CondVar callback_done_;
};

}  // namespace headrace::internal
