#pragma once

#include <string>
#include <string_view>

namespace headrace::text::json {

/// Appends a text as a JSON string, in quotes. REQUIRES: UTF-8.
void append_string(std::string_view text, std::string* out);
std::string quoted(std::string_view text);

}  // namespace headrace::text::json
