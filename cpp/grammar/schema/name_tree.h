#pragma once

// Names as a tree by their bytes, which grows.

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/automaton/expressions.h"

namespace headrace::grammar {

class NameTree {
 public:
  explicit NameTree(Expressions* expressions) : e_(*expressions) { clear(); }

  void clear() { nodes_.assign(1, {}); }
  /// Behind the name comes `end`. What is made anew is the way to it: trees that grow name by name
  /// share most of their expressions.
  void add(std::string_view name, Expr end);
  /// Any of the names, with its end.
  Expr whole() const { return nodes_.front().whole; }

 private:
  struct Node {
    std::vector<std::pair<uint8_t, uint32_t>> children;
    Expr end = kNothing;
    Expr whole = kNothing;
  };

  uint32_t child(uint32_t node, uint8_t byte);

  Expressions& e_;
  std::vector<Node> nodes_;
};

}  // namespace headrace::grammar
