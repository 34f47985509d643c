#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "bindings.h"
#include "headrace/chat.h"
#include "headrace/chat_template.h"
#include "plain_values.h"
#include "utf8.h"

namespace py = pybind11;

namespace headrace::python {

namespace {

/// A lone surrogate raises UnicodeEncodeError.
std::unique_ptr<ChatTemplate> compile(const py::str& text) {
  const std::string_view utf8 = utf8_of(text);
  const py::gil_scoped_release release;
  return std::make_unique<ChatTemplate>(utf8);
}

py::str render(const ChatTemplate& chat, const py::dict& variables) {
  std::string text;
  {
    std::optional<py::gil_scoped_release> release;
    text = chat.render([&](TemplateVariables& to) {
      give_variables(variables, &to);
      release.emplace();
    });
  }
  // Lone surrogates of the variables come back.
  PyObject* const made =
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogatepass");
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(made);
}

/// A folder's templates by name.
std::map<std::string, std::string> chat_templates(const std::string& folder) {
  const py::gil_scoped_release release;
  const auto templates = ChatTemplates::load(folder);
  std::map<std::string, std::string> by_name;
  for (const std::string& name : templates->names()) by_name[name] = *templates->find(name);
  return by_name;
}

}  // namespace

void bind_chat_template(py::module_& module) {
  py::class_<ChatTemplate>(module, "ChatTemplate",
                           "A chat template, compiled. Any thread may use it.")
      .def(py::init(&compile), py::arg("text"))
      .def("variables", &ChatTemplate::variables,
           "The variables that it reads and doesn't set itself, sorted.")
      .def("render", &render, py::arg("variables"), "The text for these variables.");
  module.def("chat_templates", &chat_templates, py::arg("folder"),
             "The chat templates of a model folder, by name.");
}

}  // namespace headrace::python
