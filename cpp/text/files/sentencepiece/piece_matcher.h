#pragma once

// sentencepiece's user-defined pieces: the longest one at a place of a text is a token of its own.

#include <cstddef>
#include <string_view>

#include "text/model/byte_trie.h"
#include "text/vocab/vocabulary.h"

namespace headrace::text {

/// Immutable: any thread may use one.
class PieceMatcher {
 public:
  explicit PieceMatcher(const Vocabulary& vocabulary);

  bool empty() const noexcept { return empty_; }
  struct Match {
    size_t size = 0;  ///< 0: there is none
    int32_t id = Vocabulary::kNoId;
  };
  /// The longest piece that `text` begins with. `steps`, if not null, gets how far it had to look.
  Match longest(std::string_view text, size_t* steps) const noexcept;

 private:
  ByteTrie trie_;
  bool empty_ = true;
};

}  // namespace headrace::text
