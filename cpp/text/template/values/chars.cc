#include "text/template/values/chars.h"

namespace headrace::text::jinja {

bool is_space(char32_t c) noexcept {
  if (c < 0x80) {
    return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20);
  }
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_ascii(std::string_view text) noexcept {
  uint8_t all = 0;
  for (const char byte : text) {
    all |= static_cast<uint8_t>(byte);
  }
  return all < 0x80;
}

size_t char_count(std::string_view text) noexcept {
  size_t count = 0;
  for (const char byte : text) {
    count += !utf8_continues(byte);
  }
  return count;
}

size_t byte_of_char(std::string_view text, size_t number) noexcept {
  size_t at = 0;
  while (at < text.size() && number > 0) {
    at += utf8_size(text[at]);
    --number;
  }
  return at;
}

size_t char_before(std::string_view text, size_t end) noexcept {
  do {
    --end;
  } while (end > 0 && utf8_continues(text[end]));
  return end;
}

std::string_view strip_space_left(std::string_view text) noexcept {
  size_t at = 0;
  while (at < text.size()) {
    size_t next = at;
    if (!is_space(next_char(text, &next))) {
      break;
    }
    at = next;
  }
  return text.substr(at);
}

std::string_view strip_space_right(std::string_view text) noexcept {
  size_t end = text.size();
  while (end > 0) {
    const size_t start = char_before(text, end);
    size_t at = start;
    if (!is_space(next_char(text, &at))) {
      break;
    }
    end = start;
  }
  return text.substr(0, end);
}

}  // namespace headrace::text::jinja
