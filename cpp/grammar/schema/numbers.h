#pragma once

#include <optional>

#include "grammar/automaton/expressions.h"
#include "grammar/schema/schema_text.h"

namespace headrace::grammar {

/// Numbers that meet all of some schemas. integers: whole ones only, without a point.
Expr number_expression(const SchemaText& text, const Schemas& schemas, bool integers,
                       Expressions* expressions);

/// A number as JSON has it, without an exponent; whole ones without a point.
std::string number_text(const Value& number);

}  // namespace headrace::grammar
