#pragma once

// A pattern of a tokenizer as its parser reads it: characters, limits, errors with their place.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "text/regex/pattern/char_set.h"
#include "text/regex/pattern/cursor.h"

namespace headrace::text {

class PatternReader : public PatternCursor {
 public:
  static constexpr size_t kMaxBytes = 64u << 10;
  static constexpr uint32_t kMaxNodes = 4096;
  static constexpr uint32_t kMaxCount = 1000;
  static constexpr int kMaxDepth = 100;

  explicit PatternReader(std::string_view pattern) : PatternCursor(pattern) {
    if (pattern.size() > kMaxBytes) {
      throw_error(ErrorCode::kLimitExceeded, "a regular expression of the tokenizer has ",
                  pattern.size(), " bytes; at most ", kMaxBytes, " are allowed");
    }
  }

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
