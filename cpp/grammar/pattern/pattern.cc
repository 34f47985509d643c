#include "grammar/pattern/pattern.h"

#include <utility>
#include <vector>

#include "grammar/pattern/syntax.h"

namespace headrace::grammar {

namespace {

using Kind = PatternNode::Kind;

/// Where in the whole pattern a part stands.
struct Edges {
  bool first = false;  ///< nothing stands before it
  bool last = false;   ///< nothing stands behind it
};

class Builder {
 public:
  Builder(const PatternTree& tree, const PatternRules& rules, Expressions* expressions,
          Chars* chars, Budget* budget)
      : tree_(tree),
        rules_(rules),
        expressions_(*expressions),
        chars_(*chars),
        budget_(*budget),
        around_(rules.search ? expressions->star(chars->any(rules.spelling)) : kEmpty) {}

  /// With what may stand around it where it is at an edge of the pattern.
  Expr build(uint32_t id, Edges edges) {
    budget_.step();
    expressions_.pay(&budget_);
    const PatternNode& node = tree_.nodes[id];
    switch (node.kind) {
      case Kind::kSequence:
        return sequence(node, edges);
      case Kind::kChoice: {
        std::vector<Expr> parts;
        for (const uint32_t child : node.children) parts.push_back(build(child, edges));
        return expressions_.choice(std::move(parts));
      }
      case Kind::kStart:
        if (!edges.first) wrong_anchor();
        return edges.last ? around_ : kEmpty;
      case Kind::kEnd:
        if (!edges.last) wrong_anchor();
        return edges.first ? around_ : kEmpty;
      case Kind::kSet:
        return surrounded(chars_.any_of(tree_.sets[node.set], rules_.spelling), edges);
      case Kind::kRepeat:
        return surrounded(expressions_.repeat(build(node.children.front(), {}), node.min, node.max),
                          edges);
    }
    return kNothing;
  }

 private:
  Expr surrounded(Expr e, Edges edges) {
    return expressions_.concat({edges.first ? around_ : kEmpty, e, edges.last ? around_ : kEmpty});
  }

  Expr sequence(const PatternNode& node, Edges edges) {
    size_t begin = 0;
    size_t end = node.children.size();
    const auto kind = [&](size_t i) { return tree_.nodes[node.children[i]].kind; };
    while (edges.first && begin < end && kind(begin) == Kind::kStart) ++begin;
    while (edges.last && end > begin && kind(end - 1) == Kind::kEnd) --end;
    // What is left at an edge stands there only if no anchor did.
    const bool open_start = edges.first && begin == 0;
    const bool open_end = edges.last && end == node.children.size();
    if (begin == end) return open_start || open_end ? around_ : kEmpty;
    std::vector<Expr> parts;
    for (size_t i = begin; i < end; ++i) {
      parts.push_back(
          build(node.children[i], {open_start && i == begin, open_end && i + 1 == end}));
    }
    Expr out = kEmpty;
    for (size_t i = parts.size(); i-- > 0;) out = expressions_.concat(parts[i], out);
    return out;
  }

  [[noreturn]] static void wrong_anchor() {
    throw_error(ErrorCode::kUnsupported,
                "it has ^ or $ within the pattern: they can only begin and end it");
  }

  const PatternTree& tree_;
  const PatternRules& rules_;
  Expressions& expressions_;
  Chars& chars_;
  Budget& budget_;
  const Expr around_;
};

}  // namespace

Expr read_pattern(std::string_view pattern, const PatternRules& rules, Expressions* expressions,
                  Chars* chars, Budget* budget) {
  const PatternTree tree = parse_pattern(pattern, rules.ecma, budget);
  return Builder(tree, rules, expressions, chars, budget).build(tree.root, {true, true});
}

}  // namespace headrace::grammar
