#pragma once

#include <pybind11/pybind11.h>

#include <string_view>

namespace headrace::python {

/// A str's UTF-8, which lives as long as it. A lone surrogate raises UnicodeEncodeError.
inline std::string_view utf8_of(const pybind11::str& text) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (data == nullptr) throw pybind11::error_already_set();
  return {data, static_cast<size_t>(size)};
}

}  // namespace headrace::python
