#include "text/unicode/utf8.h"

#include <bit>
#include <cstring>

namespace headrace::text {
namespace {

uint8_t byte_at(std::string_view bytes, size_t at) noexcept {
  return static_cast<uint8_t>(bytes[at]);
}

struct Part {
  size_t size = 1;     ///< of the character, or of its maximal part that is there
  bool whole = false;  ///< a character
  bool open = false;   ///< more bytes could make it one
};

/// What begins at `at`, byte by byte by table 3-7 of the Unicode standard: only the second byte's
/// bounds depend on the first.
Part part_at(std::string_view bytes, size_t at) noexcept {
  const uint8_t first = byte_at(bytes, at);
  if (first < 0x80) {
    return {1, true, false};
  }
  if (first < 0xC2 || first > 0xF4) {
    return {};
  }
  const size_t size = utf8_size(bytes[at]);
  uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < size; ++i) {
    if (at + i == bytes.size()) {
      return {i, false, true};
    }
    const uint8_t next = byte_at(bytes, at + i);
    if (next < low || next > high) {
      return {i, false, false};
    }
    low = 0x80;
    high = 0xBF;
  }
  return {size, true, false};
}

/// Of a character with two or three bytes and no rules of its own, else 0.
size_t common_size(std::string_view bytes, size_t at) noexcept {
  const uint8_t first = byte_at(bytes, at);
  if (first >= 0xC2 && first < 0xE0) {
    return bytes.size() - at >= 2 && utf8_continues(bytes[at + 1]) ? 2 : 0;
  }
  const bool common = first > 0xE0 && first < 0xF0 && first != 0xED && bytes.size() - at >= 3;
  return common && utf8_continues(bytes[at + 1]) && utf8_continues(bytes[at + 2]) ? 3 : 0;
}

}  // namespace

size_t ascii_end(std::string_view bytes, size_t at) noexcept {
  constexpr uint64_t kHighBits = 0x8080808080808080u;
  while (at + 8 <= bytes.size()) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, 8);
    if ((word & kHighBits) != 0) {
      static_assert(std::endian::native == std::endian::little);
      return at + static_cast<size_t>(std::countr_zero(word & kHighBits)) / 8;
    }
    at += 8;
  }
  while (at < bytes.size() && byte_at(bytes, at) < 0x80) {
    ++at;
  }
  return at;
}

size_t invalid_utf8_at(std::string_view bytes) noexcept {
  size_t at = ascii_end(bytes, 0);
  while (at < bytes.size()) {
    if (const size_t size = common_size(bytes, at)) {
      at += size;
      if (at < bytes.size() && byte_at(bytes, at) < 0x80) at = ascii_end(bytes, at);
      continue;
    }
    const Part part = part_at(bytes, at);
    if (!part.whole) {
      return at;
    }
    at += part.size;
    if (at < bytes.size() && byte_at(bytes, at) < 0x80) {
      at = ascii_end(bytes, at);
    }
  }
  return kValid;
}

void append_utf8(char32_t value, std::string* text) {
  const auto tail = [](char32_t bits) { return static_cast<char>(0x80 | (bits & 63u)); };
  if (value < 0x80) {
    text->push_back(static_cast<char>(value));
  } else if (value < 0x800) {
    const char bytes[] = {static_cast<char>(0xC0 | value >> 6), tail(value)};
    text->append(bytes, 2);
  } else if (value < 0x10000) {
    const char bytes[] = {static_cast<char>(0xE0 | value >> 12), tail(value >> 6), tail(value)};
    text->append(bytes, 3);
  } else {
    const char bytes[] = {static_cast<char>(0xF0 | value >> 18), tail(value >> 12),
                          tail(value >> 6), tail(value)};
    text->append(bytes, 4);
  }
}

size_t append_lossy(std::string_view bytes, std::string* text) {
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t end = ascii_end(bytes, at);
    text->append(bytes, at, end - at);
    at = end;
    if (at == bytes.size()) {
      break;
    }
    const Part part = part_at(bytes, at);
    if (part.open) {
      break;
    }
    if (part.whole) {
      text->append(bytes, at, part.size);
    } else {
      append_utf8(kReplacement, text);
    }
    at += part.size;
  }
  return at;
}

std::string shortened(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) {
    return std::string(text);
  }
  size_t end = max_bytes;
  while (end > 0 && utf8_continues(text[end])) {
    --end;
  }
  return std::string(text.substr(0, end)) + "...";
}

}  // namespace headrace::text
