#pragma once

// Where a word can be cut so that no merge goes beyond.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/unicode/utf8.h"

namespace headrace::text {

/// Which characters stand side by side where two tokens merge. May say so of some that never do.
class Junctions {
 public:
  void add(char32_t left, char32_t right) { bits_[place(left, right) / 64] |= bit(left, right); }
  /// All neighbours of a text.
  void add_within(std::string_view text) {
    size_t at = 0;
    char32_t last = text.empty() ? 0 : next_char(text, &at);
    while (at < text.size()) {
      const char32_t value = next_char(text, &at);
      add(last, value);
      last = value;
    }
  }
  bool may_join(char32_t left, char32_t right) const noexcept {
    return (bits_[place(left, right) / 64] & bit(left, right)) != 0;
  }

 private:
  static constexpr size_t kBits = size_t{1} << 20;
  static size_t place(char32_t left, char32_t right) noexcept {
    const uint64_t pair = static_cast<uint64_t>(left) << 21 | right;
    return static_cast<size_t>(pair * 0x9E3779B97F4A7C15 >> 44);
  }
  static uint64_t bit(char32_t left, char32_t right) noexcept {
    return uint64_t{1} << place(left, right) % 64;
  }
  std::vector<uint64_t> bits_ = std::vector<uint64_t>(kBits / 64);
};

}  // namespace headrace::text
