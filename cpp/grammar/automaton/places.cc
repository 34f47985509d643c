#include "grammar/automaton/places.h"

#include <algorithm>
#include <utility>

namespace headrace::grammar {

namespace {

constexpr size_t kTidySets = 4096;
constexpr size_t kTidyPlaces = 1 << 18;

size_t mixed(size_t hash, size_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

size_t hash_of(const Places& places) {
  size_t hash = places.may_end ? 1 : 0;
  for (const Place& place : places.list) {
    hash = mixed(mixed(hash, size_t{place.rest} << 32 | place.node), place.frame);
  }
  return hash;
}

}  // namespace

size_t PlaceSets::FrameHash::operator()(const Frame& frame) const {
  return mixed(mixed(frame.next, frame.count), frame.parent);
}

PlaceSets::PlaceSets(Program program, Expressions expressions, size_t max_sets, size_t max_frames)
    : program_(std::move(program)),
      expressions_(std::move(expressions)),
      classes_(expressions_.classes()),
      max_sets_(max_sets),
      max_frames_(max_frames) {
  frames_.push_back({});  // kNoFrame
  forget_sets();
}

void PlaceSets::forget_sets() {
  set_numbers_.clear();
  sets_.assign(1, {});
  set_numbers_.emplace(hash_of({}), kNoPlaces);
  steps_.assign(classes_, kNoPlaces);
  place_count_ = 0;
}

bool PlaceSets::tidy() {
  if (sets_.size() <= std::min(kTidySets, max_sets_ / 2) && place_count_ <= kTidyPlaces)
    return false;
  forget_sets();
  return true;
}

uint32_t PlaceSets::frame_number(const Frame& frame) {
  if (const auto known = frame_numbers_.find(frame); known != frame_numbers_.end()) {
    return known->second;
  }
  if (frames_.size() >= max_frames_) {
    throw_error(ErrorCode::kLimitExceeded, "it needs more than ", max_frames_,
                " calls, which is the limit");
  }
  const auto number = static_cast<uint32_t>(frames_.size());
  frames_.push_back(frame);
  frame_numbers_.emplace(frame, number);
  return number;
}

/// The frame of a call from `frame`. A call that is its rule's last deed leaves nothing behind:
/// lists may be as long as they like.
uint32_t PlaceSets::called(const ProgramNode& node, uint32_t frame) {
  NodeId next = node.next;
  while (program_.node(next).kind == ProgramNode::Kind::kJump) next = program_.node(next).next;
  if (frame != kNoFrame && program_.node(next).kind == ProgramNode::Kind::kReturn) {
    const Frame own = frames_[frame];
    return frame_number({own.next, 0, own.parent});
  }
  return frame_number({node.next, 0, frame});
}

void PlaceSets::enter(const Pending& at, std::vector<Pending>* waiting, Places* out,
                      Budget* budget) {
  using Kind = ProgramNode::Kind;
  budget->item();
  const ProgramNode& node = program_.node(at.node);
  if (!node.productive) return;
  switch (node.kind) {
    case Kind::kMatch:
      if (node.value != kEmpty) out->list.push_back({node.value, at.node, at.frame});
      if (expressions_.nullable(node.value)) waiting->push_back({node.next, at.frame});
      return;
    case Kind::kMenu:
      if (node.value != kNothing) out->list.push_back({node.value, at.node, at.frame});
      waiting->push_back({node.next, at.frame});
      return;
    case Kind::kSplit:
      for (const NodeId choice : program_.choices(node)) waiting->push_back({choice, at.frame});
      return;
    case Kind::kCall:
      if (program_.node(node.next).productive) {
        waiting->push_back({node.value, called(node, at.frame)});
      }
      return;
    case Kind::kReturn:
      if (at.frame == kNoFrame) {
        out->may_end = true;
      } else {
        waiting->push_back({frames_[at.frame].next, frames_[at.frame].parent});
      }
      return;
    case Kind::kJump:
      waiting->push_back({node.next, at.frame});
      return;
    case Kind::kCount: {
      Frame frame = frames_[at.frame];
      frame.count = std::min(frame.count + 1, node.value);
      waiting->push_back({node.next, frame_number(frame)});
      return;
    }
    case Kind::kGuard:
      if (frames_[at.frame].count >= node.value && frames_[at.frame].count <= node.high) {
        waiting->push_back({node.next, at.frame});
      }
      return;
  }
}

void PlaceSets::close(Pending from, Places* out, Budget* budget) {
  std::vector<Pending> waiting = {from};
  while (!waiting.empty()) {
    const Pending at = waiting.back();
    waiting.pop_back();
    enter(at, &waiting, out, budget);
  }
}

void PlaceSets::sort(Places* places) {
  std::ranges::sort(places->list);
  const auto same = std::ranges::unique(places->list);
  places->list.erase(same.begin(), same.end());
}

Places PlaceSets::start(NodeId start, Budget* budget) {
  Places out;
  close({start, kNoFrame}, &out, budget);
  sort(&out);
  return out;
}

SetId PlaceSets::behind(const Place& place, Budget* budget) {
  Places out;
  close({program_.node(place.node).next, place.frame}, &out, budget);
  sort(&out);
  return number(out, budget);
}

SetId PlaceSets::number(const Places& places, Budget* budget) {
  const size_t hash = hash_of(places);
  const auto [begin, end] = set_numbers_.equal_range(hash);
  for (auto found = begin; found != end; ++found) {
    if (sets_[found->second] == places) return found->second;
  }
  if (sets_.size() >= max_sets_) {
    throw_error(ErrorCode::kLimitExceeded, "it needs more states than its limit of ", max_sets_);
  }
  budget->step();
  const auto id = static_cast<SetId>(sets_.size());
  // Memory may run out at each line: a set that has a number has its row, too.
  steps_.resize((sets_.size() + 1) * classes_, kUnknown);
  sets_.push_back(places);
  set_numbers_.emplace(hash, id);
  place_count_ += places.list.size();
  return id;
}

SetId PlaceSets::find_step(SetId id, uint8_t byte_class, Budget* budget) {
  Places out;
  const std::vector<Place> from = sets_[id].list;
  for (const Place& place : from) {
    budget->step();
    const Expr rest = expressions_.step_class(place.rest, byte_class, budget);
    if (rest == kNothing) continue;
    if (expressions_.is_mark(rest)) {
      const ProgramNode& menu = program_.node(place.node);
      close({program_.behind(menu, expressions_.mark_of(rest)), place.frame}, &out, budget);
      continue;
    }
    if (rest != kEmpty) out.list.push_back({rest, place.node, place.frame});
    if (expressions_.nullable(rest)) {
      close({program_.node(place.node).next, place.frame}, &out, budget);
    }
  }
  sort(&out);
  const SetId found = number(out, budget);
  steps_[id * classes_ + byte_class] = found;
  return found;
}

}  // namespace headrace::grammar
