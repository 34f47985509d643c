#pragma once

// Python's two ways to fill values into a text.

#include <string_view>

#include "text/template/library/builtin.h"

namespace headrace::text::jinja {

/// format % values.
Value format_percent(Run& run, const Value& format, const Value& values);
/// format.format(...).
Value format_braces(Run& run, const Value& format, const Given& given);

/// A number as text, before it is padded.
struct NumberForm {
  char kind = 'g';     ///< e f g % and their capitals; 'r': as repr
  int precision = -1;  ///< -1: the usual
  bool alternate = false;
};
/// Of a positive number or zero, without a sign.
std::string_view float_digits(Run& run, double value, const NumberForm& form);
/// In base 2, 8, 10 or 16.
std::string_view int_digits(Run& run, uint64_t value, int base, bool capitals);

}  // namespace headrace::text::jinja
