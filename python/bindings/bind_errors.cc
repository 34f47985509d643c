#include <pybind11/gil_safe_call_once.h>

#include <string_view>

#include "bindings.h"
#include "headrace/status.h"

namespace py = pybind11;

namespace headrace::python {

namespace {

struct ErrorTypes {
  py::object base;
  py::object invalid_argument;
};

PYBIND11_CONSTINIT py::gil_safe_call_once_and_store<ErrorTypes> error_types;

py::object new_error_type(const char* name, const char* doc, const py::object& bases) {
  py::dict members;
  members["code"] = "";
  PyObject* type = PyErr_NewExceptionWithDoc(name, doc, bases.ptr(), members.ptr());
  if (type == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(type);
}

ErrorTypes make_error_types() {
  ErrorTypes types;
  types.base = new_error_type("headrace._core.HeadraceError",
                              "Base of the engine's errors. `code` is the stable name.",
                              py::handle(PyExc_RuntimeError).cast<py::object>());
  types.invalid_argument = new_error_type(
      "headrace._core.InvalidArgumentError", "A value is out of range or of the wrong form.",
      py::make_tuple(types.base, py::handle(PyExc_ValueError).cast<py::object>()));
  return types;
}

void raise(const Error& error) {
  const ErrorTypes& types = error_types.get_stored();
  const py::object& type =
      error.code() == ErrorCode::kInvalidArgument ? types.invalid_argument : types.base;
  const std::string_view what = error.what();  // may name a file that is not in UTF-8
  const auto message = py::reinterpret_steal<py::object>(
      PyUnicode_DecodeUTF8(what.data(), static_cast<Py_ssize_t>(what.size()), "replace"));
  py::object value = type(message);
  value.attr("code") = error_code_name(error.code());
  PyErr_SetObject(type.ptr(), value.ptr());
}

}  // namespace

void bind_errors(py::module_& module) {
  const ErrorTypes& types = error_types.call_once_and_store_result(make_error_types).get_stored();
  module.attr("HeadraceError") = types.base;
  module.attr("InvalidArgumentError") = types.invalid_argument;
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const Error& error) {
      raise(error);
    }
  });
}

}  // namespace headrace::python
