#pragma once

#include <functional>

namespace headrace::internal {

/// Calls fn() and throws what it throws; where `apart`, on a thread that lives no longer: which GPU
/// is current is a matter of the thread, and the caller's isn't ours. On the caller's all the same
/// if the system refuses a thread.
void run_apart(bool apart, const std::function<void()>& fn);

}  // namespace headrace::internal
