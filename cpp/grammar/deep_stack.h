#pragma once

#include <chrono>
#include <cstddef>
#include <functional>

namespace headrace::internal {

/// Calls `body` on a thread of its own with a stack of `bytes`, waits, and rethrows what it threw.
/// For code that recurses as deep as its input says. If it takes more processor time than
/// `patience`, calls `late` once, meanwhile. Throws Error(kOutOfMemory) if there is no such thread
/// to be had.
void call_on_deep_stack(size_t bytes, const std::function<void()>& body,
                        std::chrono::nanoseconds patience, const std::function<void()>& late);

}  // namespace headrace::internal
