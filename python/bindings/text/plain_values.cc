#include "plain_values.h"

#include <cmath>
#include <string>
#include <string_view>

#include "headrace/status.h"

namespace py = pybind11;

namespace headrace::python {

namespace {

/// One variable. An error of Python's, of a lone surrogate, may collect garbage, and that may run
/// anything: what is being read is held.
class PlainValue {
 public:
  PlainValue(PyObject* name, TemplateVariables* to) : name_(name), to_(*to) {}

  void give(PyObject* value);

 private:
  void text(PyObject* value);
  void integer(PyObject* value);
  void big_integer(PyObject* value);
  void real(PyObject* value);
  void dict(PyObject* value);
  bool is_key(PyObject* value) const;
  [[noreturn]] void refuse(const std::string& what) const;

  PyObject* name_;
  TemplateVariables& to_;
};

void PlainValue::give(PyObject* value) {
  const auto held = py::reinterpret_borrow<py::object>(value);
  if (PyUnicode_CheckExact(value)) {
    text(value);
  } else if (value == Py_None) {
    to_.none();
  } else if (PyBool_Check(value)) {
    to_.boolean(value == Py_True);
  } else if (PyLong_CheckExact(value)) {
    integer(value);
  } else if (PyFloat_CheckExact(value)) {
    real(value);
  } else if (PyDict_CheckExact(value)) {
    dict(value);
  } else if (PyList_CheckExact(value)) {
    to_.begin_list();
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(value); ++i) give(PyList_GET_ITEM(value, i));
    to_.end();
  } else if (PyTuple_CheckExact(value)) {
    to_.begin_tuple();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i) give(PyTuple_GET_ITEM(value, i));
    to_.end();
  } else {
    refuse(std::string("a ") + Py_TYPE(value)->tp_name);
  }
}

void PlainValue::text(PyObject* value) {
  Py_ssize_t size = 0;
  if (const char* const data = PyUnicode_AsUTF8AndSize(value, &size)) {
    return to_.text({data, static_cast<size_t>(size)});
  }
  if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) throw py::error_already_set();
  PyErr_Clear();
  const auto bytes =
      py::reinterpret_steal<py::bytes>(PyUnicode_AsEncodedString(value, "utf-8", "surrogatepass"));
  if (!bytes) throw py::error_already_set();
  to_.text(std::string_view(bytes));
}

void PlainValue::integer(PyObject* value) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow == 0) return to_.integer(number);
  const auto digits = py::reinterpret_steal<py::str>(PyObject_Str(value));
  if (!digits) {
    if (!PyErr_ExceptionMatches(PyExc_ValueError)) throw py::error_already_set();
    PyErr_Clear();
    refuse("an int of more digits than Python prints");
  }
  to_.big_integer(std::string(digits));
}

void PlainValue::real(PyObject* value) {
  const double number = PyFloat_AS_DOUBLE(value);
  if (std::isnan(number)) refuse("a NaN");
  to_.real(number);
}

void PlainValue::dict(PyObject* value) {
  to_.begin_dict();
  PyObject* key = nullptr;
  PyObject* item = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(value, &at, &key, &item) != 0;) {
    if (!is_key(key)) refuse(std::string("a dict with a key of type ") + Py_TYPE(key)->tp_name);
    const auto held = py::reinterpret_borrow<py::object>(item);
    give(key);
    give(item);
  }
  to_.end();
}

/// Those whose equality is the same here and in Python.
bool PlainValue::is_key(PyObject* value) const {
  if (PyUnicode_CheckExact(value) || value == Py_None || PyBool_Check(value)) return true;
  if (PyFloat_CheckExact(value)) return true;
  if (!PyLong_CheckExact(value)) return false;
  int overflow = 0;
  (void)PyLong_AsLongLongAndOverflow(value, &overflow);
  return overflow == 0;
}

void PlainValue::refuse(const std::string& what) const {
  throw Error(ErrorCode::kUnsupported, "the template variable '" +
                                           std::string(py::str(py::handle(name_))) +
                                           "' is not plain data: it has " + what +
                                           "; give strings, numbers, lists, tuples and dicts");
}

}  // namespace

void give_variables(const py::dict& variables, TemplateVariables* to) {
  PyObject* name = nullptr;
  PyObject* value = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(variables.ptr(), &at, &name, &value) != 0;) {
    if (!PyUnicode_CheckExact(name)) {
      throw Error(ErrorCode::kUnsupported, std::string("the name of a template variable is a ") +
                                               Py_TYPE(name)->tp_name + ": give a str");
    }
    const auto held = py::reinterpret_borrow<py::object>(value);
    PlainValue one(name, to);
    one.give(name);
    one.give(value);
  }
}

}  // namespace headrace::python
