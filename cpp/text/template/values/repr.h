#pragma once

// Values as texts: Python's str() and repr().

#include <cstddef>
#include <string_view>

#include "text/template/values/run.h"
#include "text/template/values/value.h"

namespace headrace::text::jinja {

/// str(). Markup stays what it is. Throws Fault for what has only an address to print.
Value str_of(Run& run, const Value& value);
/// Markup, or str(): jinja2's soft_str.
inline Value soft_str(Run& run, const Value& value) {
  return value.is_string() ? value : str_of(run, value);
}
Value repr_of(Run& run, const Value& value);
void append_str(Run& run, Builder* out, const Value& value);
void append_repr(Run& run, Builder* out, const Value& value);
void append_int(Builder* out, int64_t value);
void append_float(Builder* out, double value);
void append_hex(Builder* out, char32_t value, int digits);

/// Where `wanted` begins in `text` from `from` on, or npos.
size_t find_text(Run& run, std::string_view text, std::string_view wanted, size_t from);
/// `text` with what HTML gives a meaning made entities.
Value escaped(Run& run, const Value& value);

}  // namespace headrace::text::jinja
