#pragma once

// A pattern as its parser reads it: characters, flags, sets, errors with their place.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "grammar/automaton/budget.h"
#include "text/regex/pattern/char_set.h"
#include "text/regex/pattern/cursor.h"

namespace headrace::grammar {

struct PatternFlags {
  bool any_case = false;    ///< i
  bool lines = false;       ///< m
  bool dot_is_all = false;  ///< s
  bool spaced = false;      ///< x
};

class PatternReader : public text::PatternCursor {
 public:
  /// `pattern`: in UTF-8. ecma: see PatternRules.
  PatternReader(std::string_view pattern, bool ecma, Budget* budget)
      : PatternCursor(pattern), ecma_(ecma), budget_(*budget) {}

  /// Up to `end`, which is taken, too, and must come.
  std::string_view take_until(char end);
  /// White space and comments, where flag x says that they mean nothing.
  void skip_space(const PatternFlags& flags);

  /// What is behind a backslash: a character, or a set of them.
  std::variant<char32_t, text::CharSet> take_escape(bool in_brackets);
  /// Brackets, behind the opening one.
  text::CharSet take_brackets(const PatternFlags& flags, int depth);
  /// With all that differs only in case, if the flags say so.
  text::CharSet in_any_case(text::CharSet set, const PatternFlags& flags);

  [[noreturn]] void wrong(std::string_view what, size_t place) const {
    throw_error(ErrorCode::kInvalidArgument, "it is wrong at byte ", place, ": ", what);
  }
  [[noreturn]] void unsupported(std::string_view what, size_t place) const {
    throw_error(ErrorCode::kUnsupported, "it has at byte ", place, " what isn't supported: ", what);
  }

 private:
  std::optional<char32_t> take_char_escape(char32_t letter, size_t place);
  std::optional<text::CharSet> take_class(char32_t letter, size_t place);
  char32_t take_code(size_t digits, size_t place);
  text::CharSet take_property(size_t place);
  void take_item(const PatternFlags& flags, int depth, text::CharSet* out);
  /// [:name:], or brackets within brackets. false: something else comes.
  bool take_inner_set(const PatternFlags& flags, int depth, text::CharSet* out);
  bool take_posix(text::CharSet* out);
  char32_t take_range_end(const PatternFlags& flags);

  bool ecma_;
  Budget& budget_;
};

}  // namespace headrace::grammar
