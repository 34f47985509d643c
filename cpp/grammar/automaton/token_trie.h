#pragma once

// The tokens of a vocabulary as a tree by their bytes.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace headrace::grammar {

/// Nodes in the order of a walk that goes down first: what is below a node comes right behind it.
class TokenTrie {
 public:
  struct Node {
    uint32_t end;     ///< the first node that isn't below this one
    uint32_t tokens;  ///< where the tokens begin that are spelt here or below, in `tokens`
    uint32_t depth;   ///< bytes to here; the root has 0
    uint8_t byte;     ///< the last of them
  };

  /// Tokens with their bytes; a token without any is left out.
  explicit TokenTrie(std::vector<std::pair<std::string_view, int32_t>> spellings);

  /// The root is node 0; one more stands behind the last.
  const Node& node(uint32_t number) const { return nodes_[number]; }
  uint32_t size() const { return static_cast<uint32_t>(nodes_.size() - 1); }
  /// Tokens that are spelt exactly so.
  std::span<const int32_t> at(uint32_t number) const {
    return tokens_between(nodes_[number].tokens, nodes_[number + 1].tokens);
  }
  /// Tokens here and below.
  uint32_t count(uint32_t number) const {
    return nodes_[nodes_[number].end].tokens - nodes_[number].tokens;
  }
  uint32_t longest() const { return longest_; }

 private:
  std::span<const int32_t> tokens_between(uint32_t begin, uint32_t end) const {
    return std::span(tokens_).subspan(begin, end - begin);
  }

  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;
  uint32_t longest_ = 0;
};

/// Walks the nodes below `from`, which stands for `state`. step(state, byte) gives the next state,
/// or kDead, below which nothing is looked at; visit(node, state) sees each live one.
template <class State, class Step, class Visit>
void walk_below(const TokenTrie& trie, uint32_t from, State state, State dead,
                std::vector<State>* stack, const Step& step, const Visit& visit) {
  const uint32_t base = trie.node(from).depth;
  const uint32_t end = trie.node(from).end;
  stack->resize(size_t{trie.longest()} + 1);
  (*stack)[0] = state;
  for (uint32_t at = from + 1; at < end;) {
    const TokenTrie::Node& node = trie.node(at);
    const State next = step((*stack)[node.depth - base - 1], node.byte);
    if (next == dead) {
      at = node.end;
      continue;
    }
    (*stack)[node.depth - base] = next;
    visit(at, next);
    ++at;
  }
}

}  // namespace headrace::grammar
