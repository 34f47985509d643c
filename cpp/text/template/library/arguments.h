#pragma once

// What functions do with what they are given.

#include <string_view>

#include "text/template/library/builtin.h"
#include "text/template/values/compare.h"
#include "text/template/values/repr.h"

namespace headrace::text::jinja {

/// A given whole number, or `otherwise`.
inline int64_t int_argument(const Value& value, int64_t otherwise) {
  if (value.is_missing()) {
    return otherwise;
  }
  if (value.is_integral()) {
    return value.int_value();
  }
  if (value.kind == Kind::kBigInt) {
    return value.text()[0] == '-' ? INT64_MIN : INT64_MAX;
  }
  fail({"TypeError: '", type_name(value), "' object cannot be interpreted as an integer"});
}

inline bool flag_argument(Run& run, const Value& value, bool otherwise = false) {
  return value.is_missing() ? otherwise : truth(run, value);
}

/// A given text.
inline std::string_view text_argument(const Value& value, std::string_view what) {
  if (!value.is_string()) {
    fail({"TypeError: ", what, " must be a string, not ", type_name(value)});
  }
  return value.text();
}

/// REQUIRES: a filter's or method's own value.
inline std::string_view own_text(Run& run, const Value& self) {
  if (self.is_undefined()) {
    fail_undefined(run, self);
  }
  if (!self.is_string()) {
    fail({"TypeError: a string is needed, not ", type_name(self)});
  }
  return self.text();
}

inline bool is_given(const Value& value) noexcept {
  return !value.is_missing() && !value.is_none();
}

}  // namespace headrace::text::jinja
