#include "grammar/schema/strings.h"

#include <algorithm>
#include <utility>

#include "grammar/pattern/pattern.h"
#include "grammar/schema/formats.h"

namespace headrace::grammar {

Expr Strings::any() { return e_.star(chars_.any(Spelling::kQuoted)); }

Expr Strings::of(const Schemas& schemas) {
  uint32_t least = 0;
  uint32_t most = SchemaText::kHuge;
  std::vector<Expr> parts;
  for (const Value* const schema : schemas) {
    if (const auto count = text_.count(*schema, "minLength")) least = std::max(least, *count);
    if (const auto count = text_.count(*schema, "maxLength")) most = std::min(most, *count);
    if (const std::string* const own = text_.string(*schema, "pattern")) {
      parts.push_back(pattern(*schema, "pattern", *own));
    }
    if (const std::string* const own = text_.string(*schema, "format")) {
      parts.push_back(format(*schema, *own));
    }
  }
  if (least > most) return kNothing;
  const uint32_t max = most == SchemaText::kHuge ? kUnbounded : most;
  if (least > 0 || max != kUnbounded || parts.empty()) {
    parts.push_back(e_.repeat(chars_.any(Spelling::kQuoted), least, max));
  }
  return e_.both(std::move(parts));
}

Expr Strings::pattern(const Value& schema, std::string_view keyword, const std::string& pattern) {
  try {
    return read_pattern(pattern, {.spelling = Spelling::kQuoted, .search = true, .ecma = true}, &e_,
                        &chars_, &budget_);
  } catch (const InternalError&) {
    throw;
  } catch (const Error& error) {
    const std::string what = std::string("can't be used: ") + error.what();
    if (error.code() == ErrorCode::kUnsupported) text_.unsupported(schema, keyword, what);
    text_.wrong(schema, keyword, what);
  }
}

Expr Strings::format(const Value& schema, const std::string& name) {
  const std::string_view pattern = format_pattern(name);
  if (pattern.empty()) {
    text_.unsupported(schema, "format '" + name + "'",
                      "isn't known: give a pattern, or take it out");
  }
  return read_pattern(pattern, {.spelling = Spelling::kQuoted}, &e_, &chars_, &budget_);
}

}  // namespace headrace::grammar
