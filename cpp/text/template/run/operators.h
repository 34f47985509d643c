#pragma once

// Python's operators.

#include "text/template/syntax/ast.h"
#include "text/template/values/run.h"
#include "text/template/values/value.h"

namespace headrace::text::jinja {

Value operate(Run& run, Operation operation, const Value& left, const Value& right);
Value negated(Run& run, const Value& value);
/// +value
Value unchanged(Run& run, const Value& value);
bool compare(Run& run, Comparison comparison, const Value& left, const Value& right);

}  // namespace headrace::text::jinja
