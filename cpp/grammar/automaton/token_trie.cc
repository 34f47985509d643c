#include "grammar/automaton/token_trie.h"

#include <algorithm>

namespace headrace::grammar {

TokenTrie::TokenTrie(std::vector<std::pair<std::string_view, int32_t>> spellings) {
  std::ranges::sort(spellings);
  nodes_.push_back({});
  std::vector<uint32_t> path = {0};  // nodes from the root to the last spelling's
  const auto leave = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) {
      nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
    }
  };
  std::string_view last;
  for (const auto& [bytes, token] : spellings) {
    if (bytes.empty()) continue;
    const auto differ = std::ranges::mismatch(bytes, last);
    const auto common = static_cast<size_t>(differ.in1 - bytes.begin());
    leave(common + 1);
    for (size_t depth = common; depth < bytes.size(); ++depth) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({0, static_cast<uint32_t>(tokens_.size()), static_cast<uint32_t>(depth + 1),
                        static_cast<uint8_t>(bytes[depth])});
    }
    tokens_.push_back(token);
    longest_ = std::max(longest_, static_cast<uint32_t>(bytes.size()));
    last = bytes;
  }
  leave(0);
  const auto size = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({size, static_cast<uint32_t>(tokens_.size()), 0, 0});
}

}  // namespace headrace::grammar
