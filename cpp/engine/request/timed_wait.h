#pragma once

#include <chrono>
#include <optional>

#include "base/mutex.h"

namespace headrace::internal {

/// Waits until `ready()`; false if `timeout` passed first. nullopt, or a century, is for ever:
/// wait_for() adds the timeout to the clock, which must not overflow.
template <class Ready>
bool wait_until_ready(CondVar& signal, MutexLock& lock,
                      const std::optional<std::chrono::nanoseconds>& timeout, Ready ready) {
  constexpr std::chrono::nanoseconds kForever = std::chrono::hours(24 * 365 * 100);
  if (!timeout || *timeout >= kForever) {
    signal.wait(lock, ready);
    return true;
  }
  return signal.wait_for(lock, *timeout, ready);
}

}  // namespace headrace::internal
