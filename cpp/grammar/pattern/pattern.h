#pragma once

// Regular expressions in the syntax of Rust's `regex`, as expressions over bytes.

#include <string_view>

#include "grammar/automaton/expressions.h"
#include "grammar/pattern/chars.h"

namespace headrace::grammar {

struct PatternRules {
  Spelling spelling = Spelling::kPlain;
  bool search = false;  ///< a match may stand anywhere in the text; else it is the whole text
  /// As JSON schemas' patterns are, by ECMA-262: \d and \w are of ASCII, and within brackets "["
  /// and "&&" are characters like all others.
  bool ecma = false;
};

/// The texts that a pattern matches. Throws Error: kInvalidArgument for what is no pattern,
/// kUnsupported for what no automaton can do (look-around, word boundaries) or isn't known here,
/// with the place; kLimitExceeded.
Expr read_pattern(std::string_view pattern, const PatternRules& rules, Expressions* expressions,
                  Chars* chars, Budget* budget);

}  // namespace headrace::grammar
