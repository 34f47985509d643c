#pragma once

// Which variable each name means: jinja2's rules of scopes, worked out once for each template.

#include <set>
#include <string>

#include "text/template/syntax/ast.h"
#include "text/template/values/run.h"

namespace headrace::text::jinja {

/// Gives all names their places. Throws Fault for names of filters and tests that don't exist
/// where jinja2 refuses them when it compiles, and for break and continue outside of loops.
/// `undeclared`: the variables that the template reads and doesn't set itself.
void resolve_names(Program* program, Run& run, std::set<std::string>* undeclared);

/// Is there a global function of that name?
bool is_global(std::string_view name) noexcept;

}  // namespace headrace::text::jinja
