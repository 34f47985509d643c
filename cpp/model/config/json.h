#pragma once

// JSON from files that may be hostile.

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace headrace {

using Json = nlohmann::json;

struct JsonLimits {
  size_t max_bytes = 4u << 20;
  int max_depth = 32;
  size_t max_values = 1u << 20;  ///< bounds the memory that the parsed form takes
};

/// Parses one JSON object, exactly: UTF-8, no comments, no duplicate keys, nothing behind it.
/// Throws Error(kCorruptFile) naming `origin` (a file) and the fault.
Json parse_json_object(std::string_view text, const std::string& origin, const JsonLimits& limits);

/// `text` in quotes, escaped to ASCII and cut to a length fit for a message.
std::string in_quotes(std::string_view text);

/// `value` as JSON, likewise.
std::string shown(const Json& value);

}  // namespace headrace
