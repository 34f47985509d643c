#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "interpreter_gate.h"

namespace headrace::python {

/// A Python callable that C++ may keep, copy, call and drop on any thread, with or without the
/// GIL. When the interpreter is gone it does nothing. What it raises goes to sys.unraisablehook.
class PyCallback {
 public:
  /// REQUIRES: the GIL is held.
  explicit PyCallback(const pybind11::object& callable)
      : callable_(callable.inc_ref().ptr(), [](PyObject* object) {
          if (const GilAcquire gil{}) Py_DECREF(object);
        }) {}

  template <class... Args>
  void operator()(const Args&... args) const {
    const GilAcquire gil;
    if (!gil) return;
    try {
      pybind11::handle(callable_.get())(args...);
    } catch (pybind11::error_already_set& error) {
      error.discard_as_unraisable(pybind11::handle(callable_.get()).cast<pybind11::object>());
    }
  }

 private:
  std::shared_ptr<PyObject> callable_;
};

}  // namespace headrace::python
