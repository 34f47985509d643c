#pragma once

// Sets of characters as expressions over their bytes.

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/automaton/expressions.h"
#include "text/regex/pattern/char_set.h"

namespace headrace::grammar {

/// How characters are spelt.
enum class Spelling : uint8_t {
  kPlain,   ///< in UTF-8
  kQuoted,  ///< as within a string of JSON: the escapes that it needs, and no others
};

/// Remembers the expressions that it has made.
class Chars {
 public:
  explicit Chars(Expressions* expressions) : expressions_(*expressions) {}

  /// One character of the set.
  Expr any_of(const text::CharSet& set, Spelling spelling);
  /// Any character.
  Expr any(Spelling spelling);

 private:
  using Ranges = std::vector<text::CodeRange>;

  Expr utf8(const text::CharSet& set);
  Expr continued(const Ranges& ranges, int bytes);
  Expr led(const Ranges& ranges, unsigned lead, int more);
  Expr escapes(const text::CharSet& set);

  Expressions& expressions_;
  std::map<std::pair<Spelling, std::vector<std::pair<char32_t, char32_t>>>, Expr> known_;
};

/// A text in UTF-8 as a string of JSON, without its quotation marks. Each escape is in its shortest
/// form.
std::string quoted_text(std::string_view text);

}  // namespace headrace::grammar
