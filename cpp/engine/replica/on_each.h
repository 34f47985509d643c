#pragma once

#include <cstddef>
#include <functional>

namespace headrace::internal {

/// Calls fn(0) ... fn(count - 1), each on a thread of its own but fn(0), which is the caller's, and
/// waits for all. Then throws what the first of them threw. Throws Error(kIo) if there is no
/// thread.
void on_each(size_t count, const std::function<void(size_t)>& fn);

}  // namespace headrace::internal
