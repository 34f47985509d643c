#include "headrace/chat_template.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>

#include "bindings.h"

namespace py = pybind11;

namespace headrace::python {

void bind_chat_template(py::module_& module) {
  using Released = py::call_guard<py::gil_scoped_release>;
  py::class_<ChatTemplate>(module, "ChatTemplate",
                           "A chat template, compiled. Any thread may use it.")
      .def(py::init([](const std::string& text) { return ChatTemplate(text); }), py::arg("text"),
           Released())
      .def("variables", &ChatTemplate::variables,
           "The variables that it reads and doesn't set itself, sorted.")
      .def(
          "render",
          [](const ChatTemplate& chat, const std::string& variables) {
            return chat.render(variables);
          },
          py::arg("variables"), Released(), "The text for variables given as a JSON object.");
}

}  // namespace headrace::python
