#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "headrace/grammar.h"

namespace headrace::grammar {

/// What one call may do, in steps that no clock decides. Throws Error(kLimitExceeded).
class Budget {
 public:
  Budget(uint64_t steps, size_t items, const std::atomic<bool>* stop = nullptr)
      : steps_(steps), items_(items), stop_(stop) {}

  /// Work on expressions.
  void step(uint64_t count = 1) {
    if (count > steps_) [[unlikely]] {
      out("steps");
    }
    steps_ -= count;
  }
  /// Work on what stands between expressions.
  void item() {
    if (items_ == 0) [[unlikely]] {
      out("places at once");
    }
    --items_;
  }
  /// For loops over the vocabulary, which are bounded: does anybody still want the answer?
  void check_stop() {
    if (stop_ != nullptr && stop_->load(std::memory_order_relaxed)) [[unlikely]] {
      is_spent_ = true;
      throw_error(ErrorCode::kLimitExceeded, "it takes too long");
    }
  }
  /// It has thrown. What else throws kLimitExceeded are tables that are full.
  bool is_spent() const { return is_spent_; }

 private:
  [[noreturn]] void out(const char* what) {
    is_spent_ = true;
    throw_error(ErrorCode::kLimitExceeded, "it needs more ", what, " than its limit allows");
  }

  uint64_t steps_;
  size_t items_;
  const std::atomic<bool>* stop_;
  bool is_spent_ = false;
};

}  // namespace headrace::grammar
