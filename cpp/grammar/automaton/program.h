#pragma once

// How expressions follow each other: a pushdown automaton whose symbols are expressions. A schema's
// part is a rule; a rule that has others in it calls them.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "grammar/automaton/expressions.h"

namespace headrace::grammar {

using NodeId = uint32_t;

struct ProgramNode {
  enum class Kind : uint8_t {
    kMatch,   ///< `value` is an expression; then `next`
    kSplit,   ///< any of the nodes listed from `value` on, `high` of them
    kCall,    ///< the rule that begins at `value`; then `next`
    kReturn,  ///< the rule has come to its end
    kJump,    ///< `next`, which may be set later
    kCount,   ///< adds 1 to the rule's count, which stops at `value`; then `next`
    kGuard,   ///< `next` if the rule's count is from `value` to `high`
    kMenu,    ///< any text of `value`, then the node that its end names; or `next`
  };
  Kind kind;
  bool productive = false;  ///< an end can be reached from here
  uint32_t value = 0;
  uint32_t high = 0;
  NodeId next = 0;
};

/// Made node by node, from the back or through jumps; then link() once, then write() for each menu.
class Program {
 public:
  /// max_nodes: more throw Error(kLimitExceeded).
  explicit Program(size_t max_nodes) : max_nodes_(max_nodes) {}

  NodeId match(Expr e, NodeId next) {
    return add({.kind = Kind::kMatch, .value = e, .next = next});
  }
  NodeId split(std::span<const NodeId> choices);
  NodeId call(NodeId rule, NodeId next) {
    return add({.kind = Kind::kCall, .value = rule, .next = next});
  }
  NodeId finish() { return add({.kind = Kind::kReturn}); }
  /// A place whose node is set later, by land().
  NodeId jump() { return add({.kind = Kind::kJump}); }
  void land(NodeId jump, NodeId node) { nodes_[jump].next = node; }
  NodeId count(uint32_t most, NodeId next) {
    return add({.kind = Kind::kCount, .value = most, .next = next});
  }
  NodeId guard(uint32_t least, uint32_t most, NodeId next) {
    return add({.kind = Kind::kGuard, .value = least, .high = most, .next = next});
  }

  /// A choice by a text, which write() gives it: a place in one expression, where a split would
  /// have one for each text. Until then it is known only that `taken` may follow one of them.
  NodeId menu(NodeId taken, NodeId otherwise) {
    return add({.kind = Kind::kMenu, .high = taken, .next = otherwise});
  }
  /// Nodes that ends of texts name, by number. The place of the list, for write().
  uint32_t list(std::span<const NodeId> nodes);
  /// texts: mark i at an end of them stands for the node i of the list, which must be productive.
  /// Or the output goes on at `otherwise`.
  void write(NodeId menu, Expr texts, uint32_t list, NodeId otherwise) {
    nodes_[menu].value = texts;
    nodes_[menu].high = list;
    nodes_[menu].next = otherwise;
  }

  /// Finds out which nodes lead to an end. The others are never entered: whatever the automaton
  /// allows can be finished. Guards are taken for passable, which whoever builds has to see to.
  void link(Expressions* expressions, Budget* budget);

  const ProgramNode& node(NodeId id) const { return nodes_[id]; }
  std::span<const NodeId> choices(const ProgramNode& node) const {
    return std::span(choices_).subspan(node.value, node.high);
  }
  /// Behind a text of a menu that ends in mark `number`.
  NodeId behind(const ProgramNode& menu, uint32_t number) const {
    return choices_[menu.high + number];
  }
  size_t size() const { return nodes_.size(); }

 private:
  using Kind = ProgramNode::Kind;

  NodeId add(const ProgramNode& node);
  bool leads_on(const ProgramNode& node, Expressions* expressions, Budget* budget) const;

  size_t max_nodes_;
  std::vector<ProgramNode> nodes_;
  std::vector<NodeId> choices_;
};

}  // namespace headrace::grammar
