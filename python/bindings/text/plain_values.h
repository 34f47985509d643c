#pragma once

#include <pybind11/pybind11.h>

#include "headrace/chat_template.h"

namespace headrace::python {

/// Hands the variables of a template over, exactly as they are: None, bool, int, float, str, lists,
/// tuples and dicts. Throws Error(kUnsupported) for what is none of them, and for NaN, which Python
/// tells apart by its place in memory. REQUIRES: the GIL.
void give_variables(const pybind11::dict& variables, TemplateVariables* to);

}  // namespace headrace::python
