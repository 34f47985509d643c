#pragma once

// A place in a pattern.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "text/unicode/utf8.h"

namespace headrace::text {

/// What readers of any syntax do: take what comes next, or go back to where they were.
class PatternCursor {
 public:
  /// `pattern`: in UTF-8. It must outlive this.
  explicit PatternCursor(std::string_view pattern) : pattern_(pattern) {}

  bool done() const { return at_ == pattern_.size(); }
  /// In bytes.
  size_t place() const { return at_; }
  void go_back(size_t place) { at_ = place; }
  std::string_view rest() const { return pattern_.substr(at_); }
  bool looking_at(std::string_view text) const { return rest().starts_with(text); }
  bool take(std::string_view text) {
    const bool found = looking_at(text);
    at_ += found ? text.size() : 0;
    return found;
  }
  /// REQUIRES: !done().
  char32_t next() { return next_char(pattern_, &at_); }
  /// 0 at the end.
  char32_t peek() const {
    size_t at = at_;
    return done() ? 0 : next_char(pattern_, &at);
  }
  /// Up to `end`, which is taken, too. Nothing: it doesn't come.
  std::optional<std::string_view> take_until(char end) {
    const size_t size = rest().find(end);
    if (size == std::string_view::npos) {
      return std::nullopt;
    }
    const std::string_view text = rest().substr(0, size);
    at_ += size + 1;
    return text;
  }
  /// Up to `most` digits. Nothing: there is none, or the number is over `limit`.
  std::optional<uint32_t> take_number(uint32_t base, size_t most, uint32_t limit = UINT32_MAX) {
    uint64_t value = 0;
    size_t digits = 0;
    for (; digits < most && !done(); ++digits, ++at_) {
      const char c = pattern_[at_];
      const char low = static_cast<char>(c | 0x20);
      const uint32_t digit = c >= '0' && c <= '9'       ? static_cast<uint32_t>(c - '0')
                             : low >= 'a' && low <= 'f' ? static_cast<uint32_t>(low - 'a') + 10
                                                        : 16;
      if (digit >= base) {
        break;
      }
      value = std::min<uint64_t>(value * base + digit, UINT32_MAX);
    }
    return digits == 0 || value > limit ? std::nullopt
                                        : std::optional(static_cast<uint32_t>(value));
  }

 protected:
  std::string_view pattern() const { return pattern_; }

 private:
  std::string_view pattern_;
  size_t at_ = 0;
};

}  // namespace headrace::text
