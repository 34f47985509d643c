#pragma once

// UTF-8. All text within this room is valid UTF-8 except where a comment says "bytes".

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace headrace::text {

inline constexpr size_t kValid = static_cast<size_t>(-1);
inline constexpr char32_t kReplacement = 0xFFFD;

/// The byte at which `bytes` stop being UTF-8 (no surrogates, nothing overlong, nothing over
/// U+10FFFF), or kValid.
size_t invalid_utf8_at(std::string_view bytes) noexcept;

/// Bytes of the character that begins with this byte of a valid text.
constexpr size_t utf8_size(char first) noexcept {
  const auto byte = static_cast<uint8_t>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// Is this byte of a valid text another one than a character's first?
constexpr bool utf8_continues(char byte) noexcept {
  return (static_cast<uint8_t>(byte) & 0xC0) == 0x80;
}

/// The character at `at`, which is moved behind it. REQUIRES: valid text, `at` at a character's
/// start.
inline char32_t next_char(std::string_view text, size_t* at) noexcept {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[*at + i]); };
  const char32_t first = byte(0);
  char32_t value = first;
  size_t size = 1;
  if (first >= 0xF0) {
    value = (first & 7) << 18 | (byte(1) & 63u) << 12 | (byte(2) & 63u) << 6 | (byte(3) & 63u);
    size = 4;
  } else if (first >= 0xE0) {
    value = (first & 15) << 12 | (byte(1) & 63u) << 6 | (byte(2) & 63u);
    size = 3;
  } else if (first >= 0x80) {
    value = (first & 31) << 6 | (byte(1) & 63u);
    size = 2;
  }
  *at += size;
  return value;
}

/// Where the ASCII that begins at `at` ends.
size_t ascii_end(std::string_view bytes, size_t at) noexcept;

/// REQUIRES: no surrogate, at most U+10FFFF.
void append_utf8(char32_t value, std::string* text);

/// How many bytes of `bytes` are whole characters or can't become part of one, whatever follows:
/// the rest (at most 3) is an unfinished character. `text` gets them, with one U+FFFD for each
/// maximal part of a character (Unicode 3.9, table 3-8: as Python's incremental decoder and Rust's
/// lossy one do).
size_t append_lossy(std::string_view bytes, std::string* text);

/// As an error shows it: if it is longer, at most so many bytes and "...".
std::string shortened(std::string_view text, size_t max_bytes = 200);

}  // namespace headrace::text
