#pragma once

// Texts, as they stand within strings of JSON.

#include <string>
#include <string_view>

#include "grammar/automaton/expressions.h"
#include "grammar/pattern/chars.h"
#include "grammar/schema/schema_text.h"

namespace headrace::grammar {

class Strings {
 public:
  Strings(const SchemaText& text, Expressions* expressions, Chars* chars, Budget* budget)
      : text_(text), e_(*expressions), chars_(*chars), budget_(*budget) {}

  /// Any text.
  Expr any();
  /// Texts that meet minLength, maxLength, pattern and format of all of some schemas.
  Expr of(const Schemas& schemas);
  /// Texts in which a pattern matches somewhere. Of `keyword` of the schema, for messages.
  Expr pattern(const Value& schema, std::string_view keyword, const std::string& pattern);

 private:
  Expr format(const Value& schema, const std::string& name);

  const SchemaText& text_;
  Expressions& e_;
  Chars& chars_;
  Budget& budget_;
};

}  // namespace headrace::grammar
