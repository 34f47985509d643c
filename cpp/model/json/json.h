#pragma once

// JSON from files that may be hostile.

#include <cstddef>
#include <string>
#include <string_view>

#include "model/json/json_value.h"

namespace headrace {

struct JsonLimits {
  size_t max_bytes = 4u << 20;
  int max_depth = 32;
  size_t max_values = 1u << 20;  ///< bounds the memory that the parsed form takes
};

/// Parses one JSON value, exactly: UTF-8, no comments, no duplicate keys, nothing behind it. Throws
/// Error(kCorruptFile) naming `origin` (a file) and the fault.
JsonValue parse_json(std::string_view text, const std::string& origin, const JsonLimits& limits);
/// The same of an object.
JsonValue parse_json_object(std::string_view text, const std::string& origin,
                            const JsonLimits& limits);

/// `value` as JSON in one line, UTF-8. REQUIRES: its strings are UTF-8.
std::string json_text(const JsonValue& value);

/// The same in ASCII. What is not UTF-8 becomes U+FFFD.
std::string ascii_json_text(const JsonValue& value);

/// `text` in quotes, escaped to ASCII and cut to a length fit for a message.
std::string in_quotes(std::string_view text);

/// ascii_json_text(value), cut to a length fit for a message.
std::string shown(const JsonValue& value);

}  // namespace headrace
