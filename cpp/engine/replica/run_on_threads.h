#pragma once

// Calls on threads that live no longer than the call.

#include <cstddef>
#include <functional>

namespace headrace::internal {

/// Calls fn() and throws what it throws. If `own_thread`, the call runs on a new thread, because
/// each thread has a current GPU, and the caller's must not change. If the system refuses a thread,
/// the call runs on the caller's thread.
void run_on_thread(bool own_thread, const std::function<void()>& fn);

/// Calls fn(0) on the caller's thread and fn(1) ... fn(count - 1) on a new thread each, and waits
/// for all calls. If calls threw, it then throws the exception of the lowest number. Throws
/// Error(kIo) if no thread can be started.
void run_on_threads(size_t count, const std::function<void(size_t)>& fn);

}  // namespace headrace::internal
