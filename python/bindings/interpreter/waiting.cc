#include "waiting.h"

#include <pybind11/pybind11.h>

namespace py = pybind11;

namespace headrace::python {

namespace {

using std::chrono::nanoseconds;
using Clock = std::chrono::steady_clock;

constexpr nanoseconds kSignalInterval = std::chrono::milliseconds(100);
constexpr double kForeverSeconds = 1e9;

}  // namespace

bool on_main_thread() {
  const auto main = py::module_::import("threading").attr("main_thread")().attr("ident");
  return !main.is_none() && main.cast<unsigned long>() == PyThread_get_thread_ident();
}

std::optional<nanoseconds> to_timeout(const std::optional<double>& seconds) {
  if (!seconds || *seconds >= kForeverSeconds) return std::nullopt;
  if (std::isnan(*seconds)) throw py::value_error("timeout must be a number of seconds, got nan");
  const std::chrono::duration<double> duration(std::max(*seconds, 0.0));
  return std::chrono::duration_cast<nanoseconds>(duration);
}

bool wait_interruptibly(const std::optional<nanoseconds>& timeout, const Wait& wait) {
  if (!on_main_thread()) {
    const GilRelease release;
    return wait(timeout);
  }
  const Clock::time_point start = Clock::now();
  for (;;) {
    nanoseconds slice = kSignalInterval;
    if (timeout) slice = std::min(slice, *timeout - nanoseconds(Clock::now() - start));
    const bool last = timeout && slice < kSignalInterval;
    bool done = false;
    {
      const GilRelease release;
      done = wait(slice);
    }
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (done || last) return done;
  }
}

bool try_then_wait(const std::optional<nanoseconds>& timeout, const Wait& wait) {
  if (wait(nanoseconds(0))) return true;
  if (timeout && timeout->count() == 0) return false;
  return wait_interruptibly(timeout, wait);
}

}  // namespace headrace::python
