#include "grammar/automaton/expressions.h"

#include <algorithm>
#include <utility>

namespace headrace::grammar {

namespace {

constexpr size_t kFirstIndex = 1024;

uint32_t mix(uint32_t hash, uint32_t value) {
  hash = (hash ^ value) * 0x9E3779B1u;
  return hash ^ (hash >> 15);
}

}  // namespace

Expressions::Expressions(const StoreLimits& limits) : limits_(limits), index_(kFirstIndex) {
  nodes_.push_back({.kind = Kind::kNone});
  nodes_.push_back({.kind = Kind::kUnit, .nullable = true, .positive = true});
}

uint32_t Expressions::hash(const Key& key) {
  uint32_t out = mix(static_cast<uint32_t>(key.kind), key.c);
  if (key.kind != Kind::kChoice && key.kind != Kind::kBoth) {
    return mix(mix(out, key.a), key.b);
  }
  for (const Expr part : key.list) out = mix(out, part);
  return out;
}

bool Expressions::is(const Node& node, const Key& key) const {
  if (node.kind != key.kind || node.c != key.c) return false;
  if (key.kind != Kind::kChoice && key.kind != Kind::kBoth) {
    return node.a == key.a && node.b == key.b;
  }
  return std::ranges::equal(list(node), key.list);
}

void Expressions::grow_index() {
  std::vector<uint32_t> old(index_.size() * 2);
  old.swap(index_);
  const auto mask = static_cast<uint32_t>(index_.size() - 1);
  for (const uint32_t e : old) {
    if (e == 0) continue;
    const Node& node = nodes_[e];
    const bool listed = node.kind == Kind::kChoice || node.kind == Kind::kBoth;
    const Key key{node.kind, node.a, node.b, node.c, listed ? list(node) : std::span<const Expr>()};
    uint32_t place = hash(key) & mask;
    while (index_[place] != 0) place = (place + 1) & mask;
    index_[place] = e;
  }
}

Expr Expressions::intern(const Key& key) {
  work_ += 1 + key.list.size();
  if (nodes_.size() * 2 > index_.size()) grow_index();
  const auto mask = static_cast<uint32_t>(index_.size() - 1);
  uint32_t place = hash(key) & mask;
  while (index_[place] != 0) {
    if (is(nodes_[index_[place]], key)) return index_[place];
    place = (place + 1) & mask;
  }
  if (nodes_.size() >= limits_.max_expressions ||
      lists_.size() + key.list.size() > limits_.max_list_items) {
    throw_error(ErrorCode::kLimitExceeded, "it needs more memory than its limit allows");
  }
  Node node{.kind = key.kind, .a = key.a, .b = key.b, .c = key.c};
  if (key.kind == Kind::kChoice || key.kind == Kind::kBoth) {
    node.a = static_cast<uint32_t>(lists_.size());
    node.b = static_cast<uint32_t>(key.list.size());
    lists_.insert(lists_.end(), key.list.begin(), key.list.end());
  }
  describe(&node);
  const auto e = static_cast<Expr>(nodes_.size());
  nodes_.push_back(node);
  index_[place] = e;
  return e;
}

void Expressions::describe(Node* node) const {
  const auto part = [&](Expr e) -> const Node& { return nodes_[e]; };
  switch (node->kind) {
    case Kind::kNone:
    case Kind::kUnit:
      break;
    case Kind::kMark:
    case Kind::kBytes:
      node->positive = true;
      break;
    case Kind::kConcat:
      node->nullable = part(node->a).nullable && part(node->b).nullable;
      node->positive = part(node->a).positive && part(node->b).positive;
      break;
    case Kind::kChoice:
      node->nullable = std::ranges::any_of(list(*node), [&](Expr e) { return part(e).nullable; });
      node->positive = std::ranges::any_of(list(*node), [&](Expr e) { return part(e).positive; });
      break;
    case Kind::kBoth:
      node->nullable = std::ranges::all_of(list(*node), [&](Expr e) { return part(e).nullable; });
      break;
    case Kind::kComplement:
      node->nullable = !part(node->a).nullable;
      break;
    case Kind::kRepeat:
      node->nullable = node->b == 0 || part(node->a).nullable;
      node->positive = part(node->a).positive;
      break;
    case Kind::kMultiple: {
      uint64_t value = node->b;
      for (uint32_t left = node->c & ~kBehindPoint; left > 0; --left) value = value * 10 % node->a;
      node->nullable = value == 0;
      node->positive = (node->c & kBehindPoint) == 0;  // more digits always help
      break;
    }
  }
  node->positive = node->positive || node->nullable;
  node->shortest = node->nullable ? 0 : shortest_of(*node);
}

/// Of one that the empty text doesn't match.
uint32_t Expressions::shortest_of(const Node& node) const {
  constexpr uint64_t kMost = UINT32_MAX;
  const auto of = [&](Expr e) -> uint64_t { return nodes_[e].shortest; };
  switch (node.kind) {
    case Kind::kMark:
      return 0;
    case Kind::kConcat:
      return static_cast<uint32_t>(std::min(of(node.a) + of(node.b), kMost));
    case Kind::kRepeat:
      return static_cast<uint32_t>(std::min(of(node.a) * node.b, kMost));
    case Kind::kChoice:
      return nodes_[*std::ranges::min_element(list(node), {}, of)].shortest;
    case Kind::kBoth:
      return nodes_[*std::ranges::max_element(list(node), {}, of)].shortest;
    default:
      return 1;
  }
}

Expr Expressions::bytes(const ByteSet& set) {
  if (set.empty()) return kNothing;
  if (const auto known = set_numbers_.find(set); known != set_numbers_.end()) {
    return intern({Kind::kBytes, known->second, 0, 0, {}});
  }
  if (sets_.size() >= limits_.max_byte_sets) {
    throw_error(ErrorCode::kLimitExceeded, "it has more than ", limits_.max_byte_sets,
                " sets of bytes, which is the limit");
  }
  const auto number = static_cast<uint32_t>(sets_.size());
  sets_.push_back(set);
  classes_are_old_ = classes_are_old_ || splits_classes(set);
  set_numbers_.emplace(set, number);
  return intern({Kind::kBytes, number, 0, 0, {}});
}

bool Expressions::splits_classes(const ByteSet& set) const {
  for (unsigned byte = 0; byte < 256; ++byte) {
    const uint8_t other = byte_of_[class_of_[byte]];
    if (set.has(static_cast<uint8_t>(byte)) != set.has(other)) return true;
  }
  return false;
}

Expr Expressions::literal(std::string_view text) {
  Expr out = kEmpty;
  for (size_t i = text.size(); i-- > 0;) out = concat(byte(static_cast<uint8_t>(text[i])), out);
  return out;
}

Expr Expressions::literals(const std::vector<std::string_view>& texts) {
  std::vector<std::vector<Expr>> all;
  for (const std::string_view text : texts) {
    std::vector<Expr>& parts = all.emplace_back();
    for (const char c : text) parts.push_back(byte(static_cast<uint8_t>(c)));
  }
  return any_of(std::move(all));
}

Expr Expressions::any_of(std::vector<std::vector<Expr>> texts) {
  std::ranges::sort(texts);
  const auto same = std::ranges::unique(texts);
  texts.erase(same.begin(), same.end());
  return tree_of(texts, 0);
}

// `texts` are sorted and share their first `depth` parts.
Expr Expressions::tree_of(std::span<const std::vector<Expr>> texts, size_t depth) {
  std::vector<Expr> branches;
  if (!texts.empty() && texts.front().size() == depth) {
    branches.push_back(kEmpty);
    texts = texts.subspan(1);
  }
  while (!texts.empty()) {
    const std::vector<Expr>& first = texts.front();
    size_t count = 1;
    while (count < texts.size() && texts[count][depth] == first[depth]) ++count;
    const std::vector<Expr>& last = texts[count - 1];
    const auto differ = std::ranges::mismatch(first, last);
    const auto common = static_cast<size_t>(differ.in1 - first.begin());
    Expr branch = tree_of(texts.first(count), common);
    for (size_t i = common; i-- > depth;) branch = concat(first[i], branch);
    branches.push_back(branch);
    texts = texts.subspan(count);
  }
  return choice(std::move(branches));
}

Expr Expressions::concat(Expr first, Expr second) {
  if (first == kNothing || second == kNothing) return kNothing;
  if (second == kEmpty) return first;
  std::vector<Expr> heads;
  while (nodes_[first].kind == Kind::kConcat) {
    heads.push_back(nodes_[first].a);
    first = nodes_[first].b;
  }
  heads.push_back(first);
  for (size_t i = heads.size(); i-- > 0;) {
    if (heads[i] != kEmpty) second = intern({Kind::kConcat, heads[i], second, 0, {}});
  }
  return second;
}

Expr Expressions::concat(std::initializer_list<Expr> parts) {
  Expr out = kEmpty;
  for (const Expr* part = parts.end(); part != parts.begin();) out = concat(*--part, out);
  return out;
}

Expr Expressions::choice(std::vector<Expr> parts) {
  std::vector<Expr> flat;
  ByteSet set;
  for (const Expr e : parts) {
    const Node& node = nodes_[e];
    if (node.kind == Kind::kBytes) {
      set = set | sets_[node.a];
    } else if (node.kind != Kind::kChoice) {
      if (e != kNothing) flat.push_back(e);
    } else {
      for (const Expr inner : list(node)) {
        if (nodes_[inner].kind == Kind::kBytes) {
          set = set | sets_[nodes_[inner].a];
        } else {
          flat.push_back(inner);
        }
      }
    }
  }
  if (!set.empty()) flat.push_back(bytes(set));
  work_ += flat.size();
  std::ranges::sort(flat);
  const auto same = std::ranges::unique(flat);
  flat.erase(same.begin(), same.end());
  merge_repeats(&flat);
  if (flat.size() > 1 && flat.front() == kEmpty &&
      std::any_of(flat.begin() + 1, flat.end(), [&](Expr e) { return nodes_[e].nullable; })) {
    flat.erase(flat.begin());
  }
  if (flat.empty()) return kNothing;
  if (flat.size() == 1) return flat.front();
  return intern({Kind::kChoice, 0, 0, 0, flat});
}

// Counts that differ only in their bounds become one: without this, states of patterns with counts
// multiply.
void Expressions::merge_repeats(std::vector<Expr>* parts) {
  struct Counted {
    Expr part;
    Expr rest;
    uint32_t min;
    uint32_t max;
    auto operator<=>(const Counted&) const = default;
  };
  std::vector<Counted> counted;
  const auto take = [&](Expr e) {
    const bool leads = nodes_[e].kind == Kind::kConcat;
    const Node& head = nodes_[leads ? nodes_[e].a : e];
    if (head.kind != Kind::kRepeat) return false;
    counted.push_back({head.a, leads ? nodes_[e].b : kEmpty, head.b, head.c});
    return true;
  };
  std::erase_if(*parts, take);
  if (counted.empty()) return;
  std::ranges::sort(counted);
  for (size_t i = 0; i < counted.size();) {
    Counted one = counted[i++];
    while (i < counted.size() && counted[i].part == one.part && counted[i].rest == one.rest &&
           (one.max == kUnbounded || counted[i].min <= one.max + 1)) {
      one.max = std::max(one.max, counted[i++].max);
    }
    parts->push_back(concat(repeat(one.part, one.min, one.max), one.rest));
  }
  std::ranges::sort(*parts);
}

Expr Expressions::both(std::vector<Expr> parts) {
  std::vector<Expr> flat;
  bool only_empty = false;
  for (const Expr e : parts) {
    const Node& node = nodes_[e];
    if (e == kNothing) return kNothing;
    only_empty = only_empty || e == kEmpty;
    if (node.kind == Kind::kBoth) {
      const auto inner = list(node);
      flat.insert(flat.end(), inner.begin(), inner.end());
    } else if (node.kind != Kind::kComplement || node.a != kNothing) {
      flat.push_back(e);
    }
  }
  std::ranges::sort(flat);
  const auto same = std::ranges::unique(flat);
  flat.erase(same.begin(), same.end());
  if (flat.empty()) return complement(kNothing);
  if (only_empty) {
    return std::ranges::all_of(flat, [&](Expr e) { return nodes_[e].nullable; }) ? kEmpty
                                                                                 : kNothing;
  }
  if (flat.size() == 1) return flat.front();
  if (std::ranges::all_of(flat, [&](Expr e) { return nodes_[e].kind == Kind::kBytes; })) {
    ByteSet set = sets_[nodes_[flat.front()].a];
    for (const Expr e : flat) set = set & sets_[nodes_[e].a];
    return bytes(set);
  }
  return intern({Kind::kBoth, 0, 0, 0, flat});
}

Expr Expressions::complement(Expr part) {
  if (nodes_[part].kind == Kind::kComplement) return nodes_[part].a;
  return intern({Kind::kComplement, part, 0, 0, {}});
}

Expr Expressions::repeat(Expr part, uint32_t min, uint32_t max) {
  if (max == 0 || part == kEmpty) return kEmpty;
  if (part == kNothing) return min == 0 ? kEmpty : kNothing;
  if (nodes_[part].nullable) min = 0;
  if (max == 1 && (min == 1 || nodes_[part].nullable)) return part;
  const Node& inner = nodes_[part];
  if (inner.kind == Kind::kRepeat && inner.b == 0 && inner.c == kUnbounded) return part;
  return intern({Kind::kRepeat, part, min, max, {}});
}

Expr Expressions::multiple_of(uint32_t modulus, uint32_t decimals) {
  for (uint8_t digit = '0'; digit <= '9'; ++digit) byte(digit);  // each is a class of its own
  byte('.');
  return multiple(modulus, 0, decimals);
}

Expr Expressions::multiple(uint32_t modulus, uint32_t remainder, uint32_t decimals) {
  return intern({Kind::kMultiple, modulus, remainder, decimals, {}});
}

Expr Expressions::rounded(Expr e, uint32_t longest) {
  switch (nodes_[e].kind) {
    case Kind::kRepeat: {
      const Node node = nodes_[e];
      const uint32_t max = node.c >= longest ? kUnbounded : node.c;
      return repeat(node.a, std::min(node.b, longest + 1), max);
    }
    case Kind::kConcat: {
      std::vector<Expr> parts;
      for (; nodes_[e].kind == Kind::kConcat; e = nodes_[e].b) parts.push_back(nodes_[e].a);
      Expr out = nodes_[e].kind == Kind::kRepeat ? rounded(e, longest) : e;
      for (size_t i = parts.size(); i-- > 0;) {
        const bool counts = nodes_[parts[i]].kind == Kind::kRepeat;
        out = concat(counts ? rounded(parts[i], longest) : parts[i], out);
      }
      return out;
    }
    default:
      return e;
  }
}

}  // namespace headrace::grammar
