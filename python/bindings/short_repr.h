#pragma once

#include <pybind11/pybind11.h>

namespace headrace::python {

/// `__repr__` of a bound struct: "Type(field=value, ...)", the fields in the order in which they
/// were bound. Those that are zero, empty or None are left out; an enumeration never is.
pybind11::str short_repr(const pybind11::object& self);

}  // namespace headrace::python
