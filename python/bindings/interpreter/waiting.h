#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>

#include "interpreter_gate.h"

namespace headrace::python {

/// Seconds as Python gives them: None waits for ever; a negative number doesn't wait; NaN is a
/// ValueError.
std::optional<std::chrono::nanoseconds> to_timeout(const std::optional<double>& seconds);

/// Whether the caller is Python's main thread, which alone hears signals. REQUIRES: the GIL is
/// held.
bool on_main_thread();

using Wait = std::function<bool(std::optional<std::chrono::nanoseconds> slice)>;

/// Calls wait(slice) without the GIL, at least once, until it returns true (then true) or `timeout`
/// has passed (then false). On Python's main thread slices are short and signals are looked at in
/// between, so that ctrl-C raises; on others there is one slice: a waiting thread uses no CPU.
bool wait_interruptibly(const std::optional<std::chrono::nanoseconds>& timeout, const Wait& wait);

/// The same after a try that doesn't wait, and keeps the GIL.
bool try_then_wait(const std::optional<std::chrono::nanoseconds>& timeout, const Wait& wait);

}  // namespace headrace::python
