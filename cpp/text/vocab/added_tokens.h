#pragma once

// Tokens that are found in a text before the model sees it.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/match/multi_finder.h"
#include "text/vocab/vocabulary.h"

namespace headrace::text {

struct AddedToken {
  std::string content;
  int32_t id = Vocabulary::kNoId;
  bool special = false;
  bool single_word = false;  ///< not next to a letter or digit
  bool lstrip = false;       ///< takes the spaces before it, too
  bool rstrip = false;
  bool normalized = false;  ///< found in normalized text, as `pattern`
  std::string pattern;  ///< the normalized content; of tokens that aren't normalized, the content

  friend bool operator==(const AddedToken&, const AddedToken&) = default;
};

/// Immutable but for `add` and `build`: any thread may use one.
class AddedTokens {
 public:
  static constexpr size_t kMaxTokens = size_t{1} << 17;

  /// Adds tokens, each with the id of its content in the vocabulary or, if it has none there, the
  /// next free one behind all; what ids the tokens have is not looked at. A second token of one
  /// content takes the first one's place. Throws Error(kLimitExceeded). Then `build`.
  void add(std::span<const AddedToken> tokens, const Vocabulary& vocabulary);
  /// Throws Error(kUnsupported): two tokens with one pattern.
  void build();

  /// In order of id.
  std::span<const AddedToken> all() const noexcept { return tokens_; }
  const AddedToken* find(int32_t id) const noexcept;
  const AddedToken* find(std::string_view content) const noexcept;
  /// Is a token of this spelling skipped where special tokens are?
  bool is_special(std::string_view spelling) const noexcept;

  struct Piece {
    size_t begin = 0;
    size_t end = 0;
    int32_t id = Vocabulary::kNoId;  ///< kNoId: text without added tokens
  };
  /// Cuts a text at the tokens of one kind. No piece of text is empty; where a token takes spaces
  /// that belong to the next one, both have them.
  void split(std::string_view text, bool normalized, bool special_as_text,
             std::vector<Piece>* pieces) const;

 private:
  struct Matcher {
    MultiFinder finder;
    std::vector<uint32_t> tokens;  ///< by number of the string: its place in `tokens_`
  };
  static void build_one(std::span<const AddedToken> tokens, bool normalized, Matcher* matcher);

  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string_view, uint32_t> by_content_;
  std::unordered_set<std::string> special_;
  Matcher raw_;
  Matcher normalized_;
};

}  // namespace headrace::text
