#pragma once

#include <exception>
#include <utility>

#include "base/mutex.h"

namespace headrace {

/// The first exception of several threads that work on the same thing. Any thread.
class FirstFailure {
 public:
  /// In a handler: keeps the exception that is handled, unless there is one already.
  void keep() noexcept {
    const MutexLock lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
  /// Null: there is none.
  std::exception_ptr get() {
    const MutexLock lock(mutex_);
    return failure_;
  }
  /// The same, and forgets it.
  std::exception_ptr take() noexcept {
    const MutexLock lock(mutex_);
    return std::exchange(failure_, nullptr);
  }

 private:
  Mutex mutex_;
  std::exception_ptr failure_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
