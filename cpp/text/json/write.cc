#include "text/json/write.h"

#include <cstdint>

namespace headrace::text::json {

void append_string(std::string_view text, std::string* out) {
  constexpr char kDigits[] = "0123456789abcdef";
  *out += '"';
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (c == '"' || c == '\\') {
      *out += '\\';
      *out += c;
    } else if (byte < 0x20) {
      *out += "\\u00";
      *out += kDigits[byte >> 4];
      *out += kDigits[byte & 15];
    } else {
      *out += c;
    }
  }
  *out += '"';
}

std::string quoted(std::string_view text) {
  std::string out;
  append_string(text, &out);
  return out;
}

}  // namespace headrace::text::json
