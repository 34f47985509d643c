#include "bindings.h"
#include "headrace/version.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "The C++ engine: see cpp/include/headrace/*.h.";
  module.attr("__version__") = headrace::version();
  headrace::python::bind_errors(module);
  headrace::python::bind_chat_template(module);
  headrace::python::bind_options(module);
  headrace::python::bind_grammar(module);
  headrace::python::bind_results(module);
  headrace::python::bind_media(module);
  headrace::python::bind_pack(module);
  headrace::python::bind_engine(module);
  headrace::python::bind_text(module);
  headrace::python::bind_text_output(module);
}
