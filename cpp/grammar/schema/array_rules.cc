#include <algorithm>

#include "grammar/schema/rules.h"

namespace headrace::grammar {

/// The schemas of the item at a place.
Schemas Rules::item(const Schemas& leaf, size_t place) const {
  Schemas out;
  for (const Value* const schema : leaf) {
    const Value* const items = schema->find("items");
    // `items` was a list once, and additionalItems what came behind it.
    const bool old = items != nullptr && items->list() != nullptr;
    const Value::List* const first = old ? items->list() : text_.list(*schema, "prefixItems");
    const Value* own = old ? schema->find("additionalItems") : items;
    if (first != nullptr && place < first->size()) own = &(*first)[place];
    if (own != nullptr && std::ranges::find(out, own) == out.end()) out.push_back(own);
  }
  return out;
}

/// Places that have schemas of their own.
size_t Rules::own_places(const Schemas& leaf) const {
  size_t out = 0;
  for (const Value* const schema : leaf) {
    const Value* const items = schema->find("items");
    const bool old = items != nullptr && items->list() != nullptr;
    if (old && schema->find("prefixItems") != nullptr) {
      text_.wrong(*schema, "items", "is a list beside prefixItems");
    }
    const Value::List* const first = old ? items->list() : text_.list(*schema, "prefixItems");
    if (first != nullptr) out = std::max(out, first->size());
  }
  return out;
}

NodeId Rules::array(const Schemas& leaf) {
  uint32_t least = 0;
  uint32_t most = SchemaText::kHuge;
  for (const Value* const schema : leaf) {
    if (const auto count = text_.count(*schema, "minItems")) least = std::max(least, *count);
    if (const auto count = text_.count(*schema, "maxItems")) most = std::min(most, *count);
  }
  // No array has so many. Guards take it for granted that some number will do.
  if (least > most) return nothing_;
  const Expr space = marks_.space;
  const size_t own = own_places(leaf);
  // From the back: `next` is what may come behind the items so far.
  NodeId next = more_items(leaf, own, least, most);
  for (size_t place = own; place-- > 0;) {
    std::vector<NodeId> choices;
    if (place >= least) choices.push_back(lexeme({space, e_.byte(']')}, end_));
    if (place < most) {
      const NodeId item_rule = program_.call(rule(item(leaf, place)), next);
      choices.push_back(place == 0 ? lexeme({space}, item_rule)
                                   : lexeme({space, marks_.comma, space}, item_rule));
    }
    next = program_.split(choices);
  }
  return lexeme({e_.byte('[')}, next);
}

/// Behind `place` items, of which each has schemas of its own: those that are alike.
NodeId Rules::more_items(const Schemas& leaf, size_t place, uint32_t least, uint32_t most) {
  const Expr space = marks_.space;
  const NodeId close = lexeme({space, e_.byte(']')}, end_);
  std::vector<NodeId> choices;
  if (place >= least) choices.push_back(close);
  if (place >= most) return program_.split(choices);
  const NodeId item_rule = rule(item(leaf, place));
  const auto before = static_cast<uint32_t>(place);
  // Counts are those of these items alone; beyond the bounds they don't matter.
  const uint32_t fewest = least > before ? least - before : 0;
  const bool bounded = most != SchemaText::kHuge;
  const uint32_t limit = bounded ? most - before : kUnbounded;
  const NodeId again = program_.jump();
  const NodeId another = program_.call(item_rule, again);
  std::vector<NodeId> later = {program_.guard(fewest, kUnbounded, close)};
  if (limit > 1) {
    const NodeId comma = lexeme({space, marks_.comma, space}, another);
    later.push_back(bounded ? program_.guard(0, limit - 1, comma) : comma);
  }
  program_.land(again, program_.count(bounded ? limit : fewest, program_.split(later)));
  choices.push_back(place == 0 ? lexeme({space}, another)
                               : lexeme({space, marks_.comma, space}, another));
  return program_.split(choices);
}

}  // namespace headrace::grammar
