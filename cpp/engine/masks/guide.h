#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "headrace/token_constraint.h"

namespace headrace::internal {

/// The ids that end an output under a constraint: see headrace/token_constraint.h.
struct GuideEnds {
  std::vector<int32_t> eos;          ///< the model's; empty with ignore_eos
  std::vector<int32_t> stop_tokens;  ///< the request's own
  int32_t min_tokens = 0;            ///< none of them before this many
};

/// How long a mask may take.
struct MaskPatience {
  /// CPU time of the thread that works on it: a slow machine costs no request its life.
  std::chrono::nanoseconds cpu = std::chrono::seconds(1);
  /// In all, for a constraint that sleeps.
  std::chrono::nanoseconds wall = std::chrono::seconds(60);
};

/// A request under a constraint: its matcher, and which tokens may come next.
///
/// The loop thread hands it to MaskWorkers, which call compute(); from then until it is ready() it
/// belongs to them. All other times it belongs to the loop thread.
class Guide {
 public:
  enum class Next : uint8_t {
    kTokens,  ///< some may come: allowed()
    kEnd,     ///< none, and the output is complete
    kFailed,  ///< failure()
  };

  /// Ids are within the vocabulary, or are ignored.
  Guide(std::shared_ptr<TokenConstraint> constraint, int32_t vocab_size, GuideEnds ends);

  // --- the loop thread ------------------------------------------------------------------------

  /// compute() is due: for the first token, or after `token`.
  void set_due(std::optional<int32_t> token);
  bool ready() const noexcept { return ready_.load(std::memory_order_acquire); }
  /// Returns ready(), as soon as that is true but not later than told.
  bool wait_for(std::chrono::nanoseconds time);
  /// If compute() has been at it for longer, it is told to be done. Any guide, ready or not.
  void interrupt_if_late(const MaskPatience& patience);
  /// Nobody waits for it any more: compute() does nothing from now on, and is told to be done if it
  /// is at it.
  void abandon();

  Next next() const noexcept { return next_; }
  /// SampleRow::allowed.
  const uint32_t* allowed() const noexcept { return allowed_.data(); }
  std::exception_ptr failure() const noexcept { return failure_; }

  // --- a worker thread ------------------------------------------------------------------------

  void compute() noexcept;

 private:
  void advance();
  void set(int32_t token, bool allowed);
  Next finish_mask(bool may_end);

  const std::shared_ptr<TokenConstraint> constraint_;
  const int32_t vocab_size_;
  const GuideEnds ends_;
  struct Work {
    int32_t thread_id;
    int64_t cpu_start;  // nanoseconds
    std::chrono::steady_clock::time_point start;
    bool interrupted;
  };
  Mutex mutex_;  // also held while matcher_ is made and ready_ becomes true
  CondVar done_;
  std::optional<Work> work_ HEADRACE_GUARDED_BY(mutex_);  // while a thread is in compute()
  bool abandoned_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::unique_ptr<TokenMatcher> matcher_;
  std::optional<int32_t> token_;  // generated, but not yet known to the matcher
  int32_t generated_ = 0;
  std::vector<uint32_t> allowed_;
  Next next_ = Next::kFailed;
  std::exception_ptr failure_;
  std::atomic<bool> ready_{false};
};

}  // namespace headrace::internal
