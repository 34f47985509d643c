#pragma once

// One bind_x per file; module.cc calls them in this order.

#include <pybind11/pybind11.h>

namespace headrace::python {

/// Base class of the enumerations: prints their names.
inline constexpr const char* kEnumBase = "headrace.named_enum.NamedIntEnum";

void bind_chat_template(pybind11::module_& module);
void bind_errors(pybind11::module_& module);
void bind_media(pybind11::module_& module);
void bind_media_input(pybind11::module_& module);
void bind_options(pybind11::module_& module);
void bind_grammar(pybind11::module_& module);
void bind_results(pybind11::module_& module);
void bind_pack(pybind11::module_& module);
void bind_text(pybind11::module_& module);
void bind_text_output(pybind11::module_& module);
void bind_engine(pybind11::module_& module);

}  // namespace headrace::python
