#include "short_repr.h"

#include <utility>

namespace py = pybind11;

namespace headrace::python {

py::str short_repr(const py::object& self) {
  const py::type type = py::type::of(self);
  const py::object enumeration = py::module_::import("enum").attr("Enum");
  const py::object property = py::module_::import("builtins").attr("property");
  py::list parts;
  for (const py::handle item : type.attr("__dict__").attr("items")()) {
    const auto [name, member] = item.cast<std::pair<py::object, py::object>>();
    if (!py::isinstance(member, property)) continue;
    const py::object value = self.attr(name);
    if (py::isinstance(value, enumeration)) {
      parts.append(py::str("{}={}").format(name, value));
    } else if (py::bool_(value)) {
      parts.append(py::str("{}={!r}").format(name, value));
    }
  }
  return py::str("{}({})").format(type.attr("__name__"), py::str(", ").attr("join")(parts));
}

}  // namespace headrace::python
