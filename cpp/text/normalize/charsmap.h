#pragma once

// sentencepiece's precompiled_charsmap: rules, each a text and what takes its place.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headrace::text {

/// Immutable: any thread may use one.
class Charsmap {
 public:
  /// From the bytes of a file: the size of a double-array trie, the trie, replacements that end
  /// with NUL. Throws Error(kCorruptFile).
  explicit Charsmap(std::string_view bytes);

  struct Rule {
    size_t size = 0;           ///< of the text that it replaces
    std::string_view content;  ///< what takes its place; valid as long as the map
  };
  /// The rule for the shortest start of `text` that has one.
  std::optional<Rule> shortest(std::string_view text) const noexcept { return find(text, true); }
  /// The rule for the longest one: sentencepiece's own choice.
  std::optional<Rule> longest(std::string_view text) const noexcept { return find(text, false); }
  /// Is there any rule that begins with this byte?
  bool begins(char byte) const noexcept;

 private:
  std::optional<Rule> find(std::string_view text, bool first) const noexcept;
  std::string_view content(uint32_t at) const noexcept;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace headrace::text
