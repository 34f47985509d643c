#include "grammar/schema/options.h"

#include <algorithm>
#include <array>
#include <string>

#include "grammar/pattern/pattern.h"

namespace headrace::grammar {

namespace {

// A small model may never end the JSON where it may write any white space.
constexpr const char* kSpace = " |\r?\n(?: {0,20}|\t{0,10})";
constexpr const char* kAnySpace = "[ \n\r\t]+";
constexpr std::array<std::string_view, 5> kKnown = {"whitespace_flexible", "whitespace_pattern",
                                                    "item_separator", "key_separator",
                                                    "coerce_one_of"};

}  // namespace

Punctuation read_punctuation(const SchemaText& text, Expressions* expressions, Chars* chars,
                             Budget* budget) {
  const Value empty{Value::Object{}};
  const bool given = text.root().object() != nullptr && text.object(text.root(), "x-guidance");
  const Value& options = given ? *text.root().find("x-guidance") : empty;
  for (const auto& [name, value] : *options.object()) {
    if (std::ranges::find(kKnown, name) == kKnown.end()) text.unsupported(options, name);
  }
  const auto flag = [&](const char* name, bool otherwise) {
    const Value* const found = options.find(name);
    if (found == nullptr) return otherwise;
    if (found->boolean() == nullptr) text.wrong(options, name, "must be true or false");
    return *found->boolean();
  };
  const auto pattern = [&](const char* name, const char* otherwise) {
    const Value* const found = options.find(name);
    const bool is_given = found != nullptr && !found->is_null();
    const std::string own = is_given ? *text.string(options, name) : otherwise;
    return read_pattern(own, {}, expressions, chars, budget);
  };
  const char* const usual = options.find("whitespace_flexible") != nullptr ? kAnySpace : kSpace;
  const bool spaced = flag("whitespace_flexible", true) || options.find("whitespace_pattern");
  const Expr space = spaced ? expressions->optional(pattern("whitespace_pattern", usual)) : kEmpty;
  return {space, pattern("item_separator", ","), pattern("key_separator", ":"),
          flag("coerce_one_of", false)};
}

}  // namespace headrace::grammar
