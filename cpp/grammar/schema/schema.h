#pragma once

// JSON schemas as programs.

#include <string_view>

#include "grammar/automaton/program.h"
#include "headrace/grammar.h"

namespace headrace::grammar {

struct SchemaProgram {
  Program program;
  Expressions expressions;
  NodeId start;  ///< a call of the outermost rule
};

/// What a schema allows, as headrace/grammar.h says. Throws Error: kInvalidArgument for what is no
/// schema or what nothing meets, kUnsupported that names a keyword, both with its place;
/// kLimitExceeded.
SchemaProgram compile_schema(std::string_view text, const GrammarLimits& limits);

}  // namespace headrace::grammar
