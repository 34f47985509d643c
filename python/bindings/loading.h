#pragma once

#include <pybind11/pybind11.h>

#include <functional>
#include <optional>
#include <stop_token>

#include "headrace/options.h"

namespace headrace::python {

/// Runs load(options) on a thread of its own, and waits for it without the GIL.
///
/// `progress(stage, bytes_done, bytes_total)` is called on the caller's thread, about ten times a
/// second and once behind a load that succeeds. What it raises, a signal's handler (on Python's
/// main thread) and `closing` end the load; this returns when it has ended, with what was raised.
/// `undo` takes back a load that had succeeded before it could be ended; it runs without the GIL.
void run_load(ModelOptions options, const std::optional<pybind11::object>& progress,
              const std::stop_token& closing, const std::function<void(const ModelOptions&)>& load,
              const std::function<void()>& undo = {});

}  // namespace headrace::python
