#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <vector>

namespace headrace::python {

/// A token id; -1, which no token has, for a number that can't be one. Raises TypeError for what
/// has no `__index__`.
inline int32_t id_of(pybind11::handle number) {
  const auto index = pybind11::reinterpret_steal<pybind11::object>(PyNumber_Index(number.ptr()));
  if (!index) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw pybind11::error_already_set();
    PyErr_Clear();
    throw pybind11::type_error(std::string("a token id must be an int, got a value of type ") +
                               Py_TYPE(number.ptr())->tp_name);
  }
  int overflow = 0;
  const long value = PyLong_AsLongAndOverflow(index.ptr(), &overflow);
  const bool fits = overflow == 0 && value >= 0 && value <= INT32_MAX;
  return fits ? static_cast<int32_t>(value) : -1;
}

inline std::vector<int32_t> ids_of(const pybind11::iterable& numbers) {
  std::vector<int32_t> ids;
  for (const pybind11::handle number : numbers) ids.push_back(id_of(number));
  return ids;
}

}  // namespace headrace::python
