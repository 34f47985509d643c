#pragma once

// Values from JSON, and as JSON.

#include <string_view>

#include "text/template/values/run.h"
#include "text/template/values/value.h"

namespace headrace::text::jinja {

/// The members of a JSON object, with the last of those of one name. Integers of more than 64 bits
/// keep their digits. Throws Error as json::Scanner does, and if the text is no object.
Dict* variables_from_json(Run& run, std::string_view text);

struct JsonForm {
  bool ascii = false;
  bool sort_keys = false;
  bool indented = false;
  std::string_view indent;
  std::string_view between_items = ", ";
  std::string_view behind_key = ": ";
};
/// As Python's json.dumps. Throws Fault for what JSON can't hold.
Value to_json(Run& run, const Value& value, const JsonForm& form);

}  // namespace headrace::text::jinja
