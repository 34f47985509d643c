#pragma once

// Python's methods of cases, paid for. Each keeps what is markup markup.

#include "text/template/values/run.h"
#include "text/unicode/python_case.h"

namespace headrace::text::jinja {

template <std::string (*kChange)(std::string_view)>
Value changed_text(Run& run, const Value& text) {
  run.spend_bytes(text.size * uint64_t{4});
  return run.copied(kChange(text.text()), text.tag);
}

inline Value lower_text(Run& run, const Value& text) {
  return changed_text<python_lower>(run, text);
}
inline Value upper_text(Run& run, const Value& text) {
  return changed_text<python_upper>(run, text);
}

}  // namespace headrace::text::jinja
