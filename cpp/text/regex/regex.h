#pragma once

// Regular expressions of tokenizer files: Oniguruma's Ruby syntax over UTF-8, in bounded steps.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "text/fuel.h"
#include "text/normalize/normal_text.h"

namespace headrace::text {

/// Immutable: any thread may use one.
class Regex {
 public:
  virtual ~Regex() = default;
  /// The first match that begins at byte `from` of `text` or behind it: leftmost, then as
  /// backtracking finds it. May be empty. The text's ends are `^`, `$`, `\b` and look-around's
  /// ends.
  virtual std::optional<Range> find(std::string_view text, size_t from, Fuel* fuel) const = 0;

  /// Appends all matches from front to back, none overlapping, each moved by `shift`. As in the
  /// `onig` package no empty match touches the end of the one before it.
  virtual void find_all(std::string_view text, uint32_t shift, std::vector<Range>* matches,
                        Fuel* fuel) const;
};

/// Patterns of common families get matchers of their own, chosen by their exact text; others the
/// general engine. Throws Error(kCorruptFile) for a wrong pattern and Error(kUnsupported) for a
/// construct that isn't known, both with its place.
std::shared_ptr<const Regex> compile_regex(std::string_view pattern);

/// A pattern that matches just this text. An empty one matches before every character and at the
/// end.
std::shared_ptr<const Regex> literal_regex(std::string_view text);

}  // namespace headrace::text
