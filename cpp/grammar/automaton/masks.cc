#include "grammar/automaton/masks.h"

#include <algorithm>
#include <utility>

namespace headrace::grammar {

namespace {

constexpr uint32_t kWide = 2048;       // tokens that make it worth remembering which
constexpr size_t kMostWideAtOnce = 8;  // more of them are walked together
constexpr size_t kMostInnerBytes = size_t{8} << 20;
constexpr size_t kMostWidths = 1 << 16;
constexpr uint32_t kNodesPerLook = 4096;

void set_bits(std::span<const int32_t> tokens, std::span<uint32_t> mask) {
  for (const int32_t token : tokens) mask[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
}

}  // namespace

void Masks::add(PlaceSets* sets, const Places& places, std::span<uint32_t> allowed,
                Budget* budget) {
  std::vector<Place> wide;
  Places narrow;
  for (const Place& place : places.list) {
    // Behind a menu's texts come different things, so it is followed where it stands.
    const bool is_menu = sets->program().node(place.node).kind == ProgramNode::Kind::kMenu;
    (!is_menu && is_wide(sets, place.rest, budget) ? wide : narrow.list).push_back(place);
  }
  if (wide.size() > kMostWideAtOnce) {
    narrow.list = places.list;
    wide.clear();
  }
  for (const Place& place : wide) add_within(sets, place, allowed, budget);
  if (!narrow.list.empty()) add_by_walk(sets, 0, sets->number(narrow, budget), allowed, budget);
}

bool Masks::is_wide(PlaceSets* sets, Expr rest, Budget* budget) {
  if (wide_.size() > kMostWidths) wide_.clear();
  if (const auto known = wide_.find(rest); known != wide_.end()) return known->second;
  const bool found = width(sets, rest, budget) > kWide;
  return wide_[rest] = found;
}

/// Tokens whose first two bytes fit.
uint32_t Masks::width(PlaceSets* sets, Expr rest, Budget* budget) {
  Expressions* const expressions = sets->expressions();
  uint32_t out = 0;
  for (uint32_t first = 1; first < trie_.size(); first = trie_.node(first).end) {
    const Expr behind = expressions->step(rest, trie_.node(first).byte, budget);
    if (behind == kNothing) continue;
    out += static_cast<uint32_t>(trie_.at(first).size());
    for (uint32_t second = first + 1; second < trie_.node(first).end;
         second = trie_.node(second).end) {
      const bool fits = expressions->step(behind, trie_.node(second).byte, budget) != kNothing;
      out += fits ? trie_.count(second) : 0;
    }
  }
  return out;
}

void Masks::add_within(PlaceSets* sets, const Place& place, std::span<uint32_t> allowed,
                       Budget* budget) {
  const SetId behind = sets->behind(place, budget);
  const bool goes_on = !sets->places(behind).list.empty();
  const Inner& found = inner(sets, place.rest, goes_on, budget);
  for (size_t i = 0; i < words_; ++i) allowed[i] |= found.mask[i];
  if (!goes_on) return;
  for (const uint32_t exit : found.exits) add_by_walk(sets, exit, behind, allowed, budget);
}

const Masks::Inner& Masks::inner(PlaceSets* sets, Expr rest, bool exits, Budget* budget) {
  const Expr same = sets->expressions()->rounded(rest, trie_.longest());
  if (const auto known = inners_.find(same);
      known != inners_.end() && (known->second->knows_exits || !exits)) {
    return *known->second;
  }
  if (inner_bytes_ > kMostInnerBytes) {
    inners_.clear();
    inner_bytes_ = 0;
  }
  auto made = std::make_shared<Inner>();
  made->mask.resize(words_);
  made->knows_exits = exits;
  walk_expression(sets, same, made.get(), budget);
  inner_bytes_ += sizeof(uint32_t) * (made->mask.size() + made->exits.size());
  return *(inners_[same] = std::move(made));
}

void Masks::walk_expression(PlaceSets* sets, Expr rest, Inner* out, Budget* budget) {
  Expressions* const expressions = sets->expressions();
  uint32_t looks = 0;
  walk_below(
      trie_, 0, rest, kNothing, &expression_stack_,
      [&](Expr at, uint8_t byte) { return expressions->step(at, byte, budget); },
      [&](uint32_t node, Expr at) {
        if (++looks % kNodesPerLook == 0) budget->check_stop();
        set_bits(trie_.at(node), out->mask);
        if (out->knows_exits && expressions->nullable(at) && trie_.node(node).end > node + 1) {
          out->exits.push_back(node);
        }
      });
}

void Masks::add_by_walk(PlaceSets* sets, uint32_t node, SetId set, std::span<uint32_t> allowed,
                        Budget* budget) {
  uint32_t looks = 0;
  walk_below(
      trie_, node, set, kNoPlaces, &set_stack_,
      [&](SetId at, uint8_t byte) { return sets->step(at, byte, budget); },
      [&](uint32_t found, SetId) {
        if (++looks % kNodesPerLook == 0) budget->check_stop();
        set_bits(trie_.at(found), allowed);
      });
}

}  // namespace headrace::grammar
