#pragma once

// Character flags at a place of a text, fast for ASCII: what the hand-written matchers are made of.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/unicode/properties.h"
#include "text/unicode/utf8.h"

namespace headrace::text::scan {

constexpr uint16_t ascii_flags(char32_t value) {
  if (value >= 'A' && value <= 'Z') {
    return kLetter | kUpper;
  }
  if (value >= 'a' && value <= 'z') {
    return kLetter | kLower;
  }
  if (value >= '0' && value <= '9') {
    return kNumber;
  }
  if (value == ' ' || (value >= '\t' && value <= '\r')) {
    return kSpace;
  }
  if (std::u32string_view(U"$+<=>^`|~").find(value) != std::u32string_view::npos) {
    return kSymbol;
  }
  return value > ' ' && value < 0x7F ? kPunctuation : 0;
}

/// The flags that the matchers use.
inline constexpr std::array<uint16_t, 128> kAscii = [] {
  std::array<uint16_t, 128> flags{};
  for (char32_t value = 0; value < 128; ++value) {
    flags[value] = ascii_flags(value);
  }
  return flags;
}();

struct Seen {
  uint16_t flags;
  uint32_t size;
};

/// The character at `at`. REQUIRES: a character's start within a valid text.
inline Seen see(const char* at) noexcept {
  const auto first = static_cast<uint8_t>(*at);
  if (first < 0x80) [[likely]] {
    return {kAscii[first], 1};
  }
  const size_t size = utf8_size(*at);
  size_t read = 0;
  const char32_t value = next_char({at, size}, &read);
  return {char_flags(value), static_cast<uint32_t>(size)};
}

/// Behind the run of characters that have one of these flags.
inline const char* run(const char* at, const char* end, uint16_t any) noexcept {
  while (at < end) {
    const Seen seen = see(at);
    if ((seen.flags & any) == 0) {
      break;
    }
    at += seen.size;
  }
  return at;
}

/// Behind the run of characters that have none of these flags.
inline const char* run_without(const char* at, const char* end, uint16_t none) noexcept {
  while (at < end) {
    const Seen seen = see(at);
    if ((seen.flags & none) != 0) {
      break;
    }
    at += seen.size;
  }
  return at;
}

constexpr bool is_newline(char byte) noexcept { return byte == '\r' || byte == '\n'; }

}  // namespace headrace::text::scan
