#pragma once

// Calls on threads that live no longer than the call.

#include <cstddef>
#include <functional>

namespace headrace::internal {

/// Calls fn() and throws what it throws. If `own_thread`, the call is on a new thread: which GPU is
/// current is a matter of the thread, and the caller's isn't ours. It is on the caller's all the
/// same if the system refuses a thread.
void run_on_thread(bool own_thread, const std::function<void()>& fn);

/// Calls fn(0) ... fn(count - 1), each on a new thread but fn(0), which is on the caller's, and
/// waits for all. Then throws what the first of them threw. Throws Error(kIo) if there is no
/// thread.
void run_on_threads(size_t count, const std::function<void(size_t)>& fn);

}  // namespace headrace::internal
