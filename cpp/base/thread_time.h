#pragma once

#include <cstdint>

namespace headrace {

/// This thread's number in the system.
int32_t this_thread_id() noexcept;

/// CPU time of a thread of this process in nanoseconds, or -1. It stands still while the thread
/// sleeps or waits for a core.
int64_t thread_cpu_nanoseconds(int32_t thread_id) noexcept;

}  // namespace headrace
