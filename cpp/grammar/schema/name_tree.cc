#include "grammar/schema/name_tree.h"

#include <algorithm>

namespace headrace::grammar {

uint32_t NameTree::child(uint32_t node, uint8_t byte) {
  const auto& known = nodes_[node].children;
  const auto found = std::ranges::find(known, byte, &std::pair<uint8_t, uint32_t>::first);
  if (found != known.end()) return found->second;
  const auto made = static_cast<uint32_t>(nodes_.size());
  nodes_[node].children.emplace_back(byte, made);
  nodes_.emplace_back();
  return made;
}

void NameTree::add(std::string_view name, Expr end) {
  std::vector<uint32_t> way = {0};
  for (const char c : name) way.push_back(child(way.back(), static_cast<uint8_t>(c)));
  nodes_[way.back()].end = end;
  for (; !way.empty(); way.pop_back()) {
    Node& node = nodes_[way.back()];
    std::vector<Expr> branches = {node.end};
    for (const auto& [byte, below] : node.children) {
      branches.push_back(e_.concat(e_.byte(byte), nodes_[below].whole));
    }
    node.whole = e_.choice(std::move(branches));
  }
}

}  // namespace headrace::grammar
