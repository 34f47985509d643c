#pragma once

// A pattern as its parser reads it: characters, limits, errors with their place.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "text/regex/pattern/char_set.h"
#include "text/unicode/utf8.h"

namespace headrace::text {

class PatternReader {
 public:
  static constexpr size_t kMaxBytes = 64u << 10;
  static constexpr uint32_t kMaxNodes = 4096;
  static constexpr uint32_t kMaxCount = 1000;
  static constexpr int kMaxDepth = 100;

  explicit PatternReader(std::string_view pattern) : pattern_(pattern) {
    if (pattern.size() > kMaxBytes) {
      throw_error(ErrorCode::kLimitExceeded, "a regular expression of the tokenizer has ",
                  pattern.size(), " bytes; at most ", kMaxBytes, " are allowed");
    }
  }

  bool done() const { return at_ == pattern_.size(); }
  size_t place() const { return at_; }
  void go_back(size_t place) { at_ = place; }
  bool looking_at(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    const bool found = looking_at(text);
    at_ += found ? text.size() : 0;
    return found;
  }
  /// REQUIRES: !done().
  char32_t next() { return next_char(pattern_, &at_); }
  char32_t peek() const {
    size_t at = at_;
    return at < pattern_.size() ? next_char(pattern_, &at) : 0;
  }
  /// Up to `end`, which is taken, too. Nothing: it doesn't come.
  std::optional<std::string_view> take_until(char end) {
    const size_t found = pattern_.find(end, at_);
    if (found == std::string_view::npos) {
      return std::nullopt;
    }
    const std::string_view text = pattern_.substr(at_, found - at_);
    at_ = found + 1;
    return text;
  }
  /// Up to `most` digits. Nothing: there is none, or the number is over `limit`.
  std::optional<uint32_t> take_number(uint32_t base, size_t most, uint32_t limit);

  /// Counts towards the limit.
  void count_node() {
    if (++nodes_ > kMaxNodes) {
      too_much("more than 4096 parts");
    }
  }

  [[noreturn]] void wrong(std::string_view what, size_t place) const {
    throw_error(ErrorCode::kCorruptFile, "the tokenizer's regular expression '", shown(),
                "' is wrong at byte ", place, ": ", what);
  }
  [[noreturn]] void unsupported(std::string_view what, size_t place) const {
    throw_error(ErrorCode::kUnsupported, "the tokenizer's regular expression '", shown(),
                "' has at byte ", place, " what isn't supported: ", what);
  }
  [[noreturn]] void too_much(std::string_view what) const {
    throw_error(ErrorCode::kLimitExceeded, "the tokenizer's regular expression '", shown(),
                "' has ", what);
  }

 private:
  std::string_view shown() const;

  std::string_view pattern_;
  size_t at_ = 0;
  uint32_t nodes_ = 0;
};

/// A character that an escape stands for in and out of brackets (behind its backslash), or nothing
/// if it means something else.
std::optional<char32_t> take_escaped_char(PatternReader* reader);
/// `\d \w \s \h`, their opposites, and `\p{..}`, or nothing as above. words: what
/// \w and \p{Word} are here.
std::optional<CharSet> take_escaped_set(PatternReader* reader, CharSet (*words)());
/// Brackets, behind the opening one.
CharSet take_brackets(PatternReader* reader, bool any_case);

}  // namespace headrace::text
