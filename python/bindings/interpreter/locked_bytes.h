#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "headrace/status.h"

namespace headrace::python {

/// The bytes of a contiguous buffer, which stays locked as long as this lives. Made and destroyed
/// with the GIL.
class LockedBytes {
 public:
  explicit LockedBytes(const pybind11::object& owner) {
    if (PyObject_GetBuffer(owner.ptr(), &view_, PyBUF_SIMPLE) != 0)
      throw pybind11::error_already_set();
  }
  ~LockedBytes() { PyBuffer_Release(&view_); }
  LockedBytes(const LockedBytes&) = delete;
  LockedBytes& operator=(const LockedBytes&) = delete;

  const uint8_t* data() const { return static_cast<const uint8_t*>(view_.buf); }

  /// Throws unless there are `count` bytes.
  void require(const char* name, size_t count) const {
    if (static_cast<size_t>(view_.len) != count) {
      throw Error(ErrorCode::kInvalidArgument, std::string(name) + " must have " +
                                                   std::to_string(count) + " bytes, got " +
                                                   std::to_string(view_.len));
    }
  }

 private:
  Py_buffer view_{};
};

}  // namespace headrace::python
