#pragma once

// Methods and other attributes of values.

#include <string_view>

#include "text/template/library/builtin.h"

namespace headrace::text::jinja {

/// Null if values of that type have no such method.
const Builtin* find_method(const Value& self, std::string_view name);
/// Methods of Python's that would change a list or a dict: the sandbox refuses them.
bool is_refused_method(const Value& self, std::string_view name);
/// An attribute that is no method: loop.index, x.real. Missing if there is none.
Value find_property(Run& run, const Value& self, std::string_view name);

}  // namespace headrace::text::jinja
