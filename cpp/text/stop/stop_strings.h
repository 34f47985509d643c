#pragma once

// Finds stop strings in text that arrives piece by piece.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/text_output.h"
#include "text/match/multi_match.h"

namespace headrace::text {

/// One output's walk through the automaton. The match found is the one that ends first; of several
/// that end at the same byte, the longest. So neither depends on how the text is cut into pieces.
class StopScanner {
 public:
  explicit StopScanner(std::shared_ptr<const StopStrings::Set> strings)
      : strings_(std::move(strings)) {}

  /// Takes more text, in whole characters. may_stop: matches that end in it count. After a match,
  /// the walk is over.
  std::optional<StopMatch> scan(std::string_view text, bool may_stop);
  /// Bytes from the start that no later text can make part of a stop string.
  size_t settled() const noexcept { return length_ - held_; }

 private:
  std::shared_ptr<const StopStrings::Set> strings_;
  uint32_t state_ = 0;
  size_t length_ = 0;
  size_t chars_ = 0;
  size_t held_ = 0;
};

/// Text on its way out, of which what may begin a stop string is held back.
class StopText {
 public:
  /// keeps_string: the stop string that ends the text is part of it.
  StopText(const StopStrings& strings, bool keeps_string);

  /// The stop string that ended the text.
  const std::optional<StopMatch>& match() const noexcept { return match_; }
  /// Of all text that came, in bytes.
  size_t length() const noexcept { return length_; }
  /// Bytes that have gone out, or would have.
  size_t settled() const noexcept { return length_ - held_.size(); }
  /// Where the text ends. REQUIRES: a match.
  size_t end() const noexcept { return keeps_string_ ? match_->end : match_->start; }

  /// Appends what can go out now: nothing later takes it back.
  void push(std::string_view text, bool may_stop, std::string* out);
  /// No more text.
  void finish(std::string_view text, bool may_stop, std::string* out);

 private:
  void take(size_t end, std::string* out);

  StopScanner scanner_;
  bool keeps_string_;
  std::string held_;
  size_t length_ = 0;
  std::optional<StopMatch> match_;
};

}  // namespace headrace::text
