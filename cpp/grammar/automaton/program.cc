#include "grammar/automaton/program.h"

#include <algorithm>

namespace headrace::grammar {

NodeId Program::add(const ProgramNode& node) {
  if (nodes_.size() >= max_nodes_) {
    throw_error(ErrorCode::kLimitExceeded, "it needs more than ", max_nodes_,
                " nodes, which is the limit");
  }
  nodes_.push_back(node);
  return static_cast<NodeId>(nodes_.size() - 1);
}

NodeId Program::split(std::span<const NodeId> choices) {
  if (choices.size() == 1) return choices.front();
  const uint32_t begin = list(choices);
  return add({.kind = Kind::kSplit, .value = begin, .high = static_cast<uint32_t>(choices.size())});
}

uint32_t Program::list(std::span<const NodeId> nodes) {
  if (choices_.size() + nodes.size() > 4 * max_nodes_) {
    throw_error(ErrorCode::kLimitExceeded, "it has more than ", 4 * max_nodes_,
                " alternatives, which is the limit");
  }
  const auto begin = static_cast<uint32_t>(choices_.size());
  choices_.insert(choices_.end(), nodes.begin(), nodes.end());
  return begin;
}

bool Program::leads_on(const ProgramNode& node, Expressions* expressions, Budget* budget) const {
  switch (node.kind) {
    case Kind::kReturn:
      return true;
    case Kind::kSplit:
      return std::ranges::any_of(choices(node), [&](NodeId id) { return nodes_[id].productive; });
    case Kind::kCall:
      return nodes_[node.value].productive && nodes_[node.next].productive;
    case Kind::kMenu:
      return nodes_[node.high].productive || nodes_[node.next].productive;
    case Kind::kMatch:
      return nodes_[node.next].productive && expressions->alive(node.value, budget);
    case Kind::kJump:
    case Kind::kCount:
    case Kind::kGuard:
      return nodes_[node.next].productive;
  }
  return false;
}

// Each node is looked at again when one that it depends on turns out to lead on.
void Program::link(Expressions* expressions, Budget* budget) {
  std::vector<std::vector<NodeId>> users(nodes_.size());
  std::vector<NodeId> waiting;
  for (NodeId id = 0; id < nodes_.size(); ++id) {
    ProgramNode& node = nodes_[id];
    node.productive = false;
    waiting.push_back(id);
    if (node.kind == Kind::kSplit) {
      for (const NodeId choice : choices(node)) users[choice].push_back(id);
    } else if (node.kind != Kind::kReturn) {
      users[node.next].push_back(id);
      if (node.kind == Kind::kCall) users[node.value].push_back(id);
      if (node.kind == Kind::kMenu) users[node.high].push_back(id);
    }
  }
  while (!waiting.empty()) {
    const NodeId id = waiting.back();
    waiting.pop_back();
    ProgramNode& node = nodes_[id];
    if (node.productive || !leads_on(node, expressions, budget)) continue;
    node.productive = true;
    waiting.insert(waiting.end(), users[id].begin(), users[id].end());
  }
}

}  // namespace headrace::grammar
