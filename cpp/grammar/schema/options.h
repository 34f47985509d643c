#pragma once

#include "grammar/automaton/expressions.h"
#include "grammar/pattern/chars.h"
#include "grammar/schema/schema_text.h"

namespace headrace::grammar {

/// What may stand between the parts of JSON: x-guidance of a schema.
struct Punctuation {
  Expr space;  ///< white space, or nothing
  Expr comma;
  Expr colon;
  bool coerce_one_of = false;
};

/// Throws Error: kInvalidArgument, kUnsupported.
Punctuation read_punctuation(const SchemaText& text, Expressions* expressions, Chars* chars,
                             Budget* budget);

}  // namespace headrace::grammar
