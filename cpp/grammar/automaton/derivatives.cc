#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "grammar/automaton/expressions.h"

namespace headrace::grammar {

size_t Expressions::classes() {
  if (classes_are_old_) find_classes();
  return class_count_;
}

// Splits all bytes by each set. Rows are by class, so they are made anew; what lives stays known.
void Expressions::find_classes() {
  class_of_.fill(0);
  size_t count = 1;
  for (const ByteSet& set : sets_) {
    std::array<int, 256> inside{};
    inside.fill(-1);
    std::array<size_t, 256> members{};
    std::array<size_t, 256> hits{};
    for (unsigned byte = 0; byte < 256; ++byte) {
      ++members[class_of_[byte]];
      hits[class_of_[byte]] += set.has(static_cast<uint8_t>(byte)) ? 1u : 0u;
    }
    for (unsigned byte = 0; byte < 256; ++byte) {
      const uint8_t old = class_of_[byte];
      if (hits[old] == 0 || hits[old] == members[old] || !set.has(static_cast<uint8_t>(byte))) {
        continue;
      }
      if (inside[old] < 0) inside[old] = static_cast<int>(count++);
      class_of_[byte] = static_cast<uint8_t>(inside[old]);
    }
  }
  for (unsigned byte = 256; byte-- > 0;) byte_of_[class_of_[byte]] = static_cast<uint8_t>(byte);
  class_count_ = count;
  for (Node& node : nodes_) node.row = kNoRow;
  rows_.clear();
  row_count_ = 0;
  classes_are_old_ = false;
}

uint32_t* Expressions::row(Expr e) {
  if (classes_are_old_) find_classes();
  if (nodes_[e].row == kNoRow) {
    if (row_count_ >= limits_.max_states) {
      throw_error(ErrorCode::kLimitExceeded, "it needs more states than its limit of ",
                  limits_.max_states);
    }
    const auto first = static_cast<uint32_t>(rows_.size());
    rows_.resize(rows_.size() + class_count_, kUnknown);
    nodes_[e].row = first;
    ++row_count_;
  }
  return rows_.data() + nodes_[e].row;
}

Expr Expressions::find_step(Expr e, uint8_t byte_class, Budget* budget) {
  const Expr found = derive(e, byte_class, budget);
  const Expr kept = alive(found, budget) ? found : kNothing;
  if (nodes_[e].kind > Kind::kBytes) row(e)[byte_class] = kept;
  return kept;
}

Expr Expressions::derive(Expr e, uint8_t byte_class, Budget* budget) {
  budget->step();
  const Node& node = nodes_[e];
  switch (node.kind) {
    case Kind::kNone:
    case Kind::kUnit:
    case Kind::kMark:
      return kNothing;
    case Kind::kBytes:
      return sets_[node.a].has(byte_of_[byte_class]) ? kEmpty : kNothing;
    default:
      break;
  }
  const uint32_t known = row(e)[byte_class];
  if (known != kUnknown) return known & ~kRawBit;
  const Expr found = derive_now(e, byte_class, budget);
  pay(budget);
  row(e)[byte_class] = found == kNothing || nodes_[found].positive ? found : found | kRawBit;
  return found;
}

Expr Expressions::derive_now(Expr e, uint8_t byte_class, Budget* budget) {
  const Node node = nodes_[e];
  switch (node.kind) {
    case Kind::kConcat:
      return derive_concat(e, byte_class, budget);
    case Kind::kChoice:
    case Kind::kBoth:
      return derive_list(node, byte_class, budget);
    case Kind::kComplement:
      return complement(derive(node.a, byte_class, budget));
    case Kind::kRepeat:
      return derive_repeat(node, byte_class, budget);
    case Kind::kMultiple:
      return derive_multiple(node, byte_class);
    default:
      return kNothing;
  }
}

Expr Expressions::derive_concat(Expr e, uint8_t byte_class, Budget* budget) {
  std::vector<Expr> parts;
  while (true) {
    const Node node = nodes_[e];
    if (node.kind != Kind::kConcat) {
      parts.push_back(derive(e, byte_class, budget));
      break;
    }
    const Expr head = derive(node.a, byte_class, budget);
    if (head != kNothing) parts.push_back(concat(head, node.b));
    if (!nodes_[node.a].nullable) break;
    e = node.b;
  }
  return parts.size() == 1 ? parts.front() : choice(std::move(parts));
}

Expr Expressions::derive_list(const Node& node, uint8_t byte_class, Budget* budget) {
  std::vector<Expr> parts = copied_list(node);
  for (Expr& part : parts) {
    part = derive(part, byte_class, budget);
    if (part == kNothing && node.kind == Kind::kBoth) return kNothing;
  }
  return node.kind == Kind::kBoth ? both(std::move(parts)) : choice(std::move(parts));
}

Expr Expressions::derive_repeat(const Node& node, uint8_t byte_class, Budget* budget) {
  const Expr head = derive(node.a, byte_class, budget);
  if (head == kNothing) return kNothing;
  const uint32_t min = node.b == 0 ? 0 : node.b - 1;
  const uint32_t max = node.c == kUnbounded ? kUnbounded : node.c - 1;
  return concat(head, repeat(node.a, min, max));
}

Expr Expressions::derive_multiple(const Node& node, uint8_t byte_class) {
  const uint8_t value = byte_of_[byte_class];
  const bool behind_point = (node.c & kBehindPoint) != 0;
  const uint32_t decimals = node.c & ~kBehindPoint;
  if (value == '.') {
    return behind_point || decimals == 0 ? kNothing
                                         : multiple(node.a, node.b, decimals | kBehindPoint);
  }
  if (value < '0' || value > '9' || (behind_point && decimals == 0)) return kNothing;
  const auto remainder = static_cast<uint32_t>((uint64_t{node.b} * 10 + value - '0') % node.a);
  return multiple(node.a, remainder, behind_point ? node.c - 1 : node.c);
}

bool Expressions::alive(Expr e, Budget* budget) {
  while (true) {
    const Node node = nodes_[e];
    if (node.positive || node.life == 1) return true;
    if (node.kind == Kind::kNone || node.life == 2) return false;
    switch (node.kind) {
      case Kind::kConcat:
        if (!alive(node.a, budget)) return false;
        e = node.b;
        continue;
      case Kind::kRepeat:
        e = node.a;
        continue;
      case Kind::kChoice:
        return std::ranges::any_of(copied_list(node),
                                   [&](Expr part) { return alive(part, budget); });
      default:
        return search(e, budget);
    }
  }
}

// Follows the derivatives until one is known to match something, those first that have the fewest
// bytes to go. If none is, all of them are dead.
bool Expressions::search(Expr e, Budget* budget) {
  std::unordered_map<Expr, Expr> from = {{e, e}};
  std::set<std::pair<uint32_t, Expr>> waiting = {{nodes_[e].shortest, e}};
  const size_t class_count = classes();
  while (!waiting.empty()) {
    const Expr at = waiting.begin()->second;
    waiting.erase(waiting.begin());
    for (size_t c = 0; c < class_count; ++c) {
      const Expr next = derive(at, static_cast<uint8_t>(c), budget);
      if (next == kNothing || nodes_[next].life == 2) continue;
      if (nodes_[next].positive || nodes_[next].life == 1) {
        for (Expr back = at;; back = from[back]) {
          nodes_[back].life = 1;
          if (back == e) return true;
        }
      }
      if (from.try_emplace(next, at).second) waiting.emplace(nodes_[next].shortest, next);
    }
  }
  for (const auto& [dead, parent] : from) nodes_[dead].life = 2;
  return false;
}

bool Expressions::matches(Expr e, std::string_view text, Budget* budget) {
  constexpr size_t kKnownPerStep = 8;
  budget->step(text.size() / kKnownPerStep);
  for (const char c : text) e = step(e, static_cast<uint8_t>(c), budget);
  return nullable(e);
}

}  // namespace headrace::grammar
