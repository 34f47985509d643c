#include "base/in_quotes.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace headrace {

namespace {

constexpr size_t kShownBytes = 120;
constexpr char32_t kReplacement = 0xFFFD;

/// The character at `*at`, which moves behind it; behind one byte if it isn't UTF-8.
char32_t next_char(std::string_view text, size_t* at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte((*at)++);
  if (first < 0x80) return first;
  const size_t more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
  if (first < 0xC2 || first > 0xF4 || more > text.size() - *at) return kReplacement;
  char32_t value = first & (0x3F >> more);
  for (size_t i = 0; i < more; ++i) {
    if ((byte(*at + i) & 0xC0) != 0x80) return kReplacement;
    value = value << 6 | (byte(*at + i) & 0x3F);
  }
  constexpr char32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
  if (value < kLeast[more] || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
    return kReplacement;
  }
  *at += more;
  return value;
}

void append_unit(char32_t unit, std::string* out) {
  char escape[8];
  std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(unit));
  *out += escape;
}

void append_char(char32_t value, std::string* out) {
  constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
  const size_t escaped = value < 0x80 ? kEscaped.find(static_cast<char>(value)) : kEscaped.npos;
  if (escaped != kEscaped.npos) {
    *out += {'\\', kNames[escaped]};
  } else if (value >= 0x20 && value <= 0x7E) {
    *out += static_cast<char>(value);
  } else if (value < 0x10000) {
    append_unit(value, out);
  } else {
    append_unit(0xD7C0 + (value >> 10), out);
    append_unit(0xDC00 + (value & 0x3FF), out);
  }
}

}  // namespace

std::string in_quotes(std::string_view text) {
  text = text.substr(0, kShownBytes);
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) append_char(next_char(text, &at), &out);
  out += '"';
  if (out.size() > 2 * kShownBytes) out = out.substr(0, kShownBytes) + "...";
  return out;
}

}  // namespace headrace
