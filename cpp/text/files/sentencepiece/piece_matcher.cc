#include "text/files/sentencepiece/piece_matcher.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace headrace::text {

PieceMatcher::PieceMatcher(const Vocabulary& vocabulary) {
  std::vector<ByteTrie::Entry> entries;
  for (int32_t id = 0; id < vocabulary.end(); ++id) {
    if (vocabulary.kind(id) == TokenKind::kUserDefined && !vocabulary.bytes(id).empty()) {
      entries.push_back({vocabulary.bytes(id), id});
    }
  }
  empty_ = entries.empty();
  trie_ = ByteTrie(std::move(entries));
}

PieceMatcher::Match PieceMatcher::longest(std::string_view text, size_t* steps) const noexcept {
  Match match;
  uint32_t node = ByteTrie::kRoot;
  size_t size = 0;
  while (size < text.size() && trie_.step(&node, text[size])) {
    ++size;
    if (trie_.id_at(node) != ByteTrie::kNoId) {
      match = {size, trie_.id_at(node)};
    }
  }
  if (steps != nullptr) {
    *steps = size;
  }
  return match;
}

}  // namespace headrace::text
