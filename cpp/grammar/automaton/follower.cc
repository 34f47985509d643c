#include "grammar/automaton/follower.h"

#include <algorithm>
#include <utility>

namespace headrace::grammar {

namespace {

constexpr size_t kMostMasks = 32;

}  // namespace

Follower::Follower(const Vocabulary& vocabulary, Automaton automaton)
    : vocabulary_(vocabulary),
      start_(automaton.start),
      sets_(std::move(automaton.sets)),
      tokens_(vocabulary.tokens(), vocabulary.size()),
      first_tokens_(vocabulary.first_tokens(), vocabulary.size()) {}

Position Follower::begin(Budget* budget) {
  const MutexLock lock(mutex_);
  return {.places = sets_.start(start_, budget)};
}

SetId Follower::number(Position* position, Budget* budget) {
  if (sets_.tidy()) {
    ++generation_;
    known_.clear();
  }
  if (position->generation != generation_) {
    position->set = sets_.number(position->places, budget);
    position->generation = generation_;
  }
  return position->set;
}

const Mask& Follower::mask(SetId set, Budget* budget) {
  const auto found = known_.find(set);
  if (found != known_.end()) return found->second;
  if (known_.size() >= kMostMasks) known_.clear();
  Mask made((vocabulary_.size() + 31) / 32);
  const Places places = sets_.places(set);
  tokens_.add(&sets_, places, made, budget);
  return known_[set] = std::move(made);
}

bool Follower::allow(Position* position, bool at_start, std::span<uint32_t> allowed,
                     Budget* budget) {
  const MutexLock lock(mutex_);
  Mask own = mask(number(position, budget), budget);
  if (at_start) change_first(position->places, own, budget);
  std::copy_n(own.begin(), std::min(own.size(), allowed.size()), allowed.begin());
  return position->places.may_end;
}

void Follower::change_first(const Places& places, std::span<uint32_t> allowed, Budget* budget) {
  // A token that adds nothing may come if another can follow it.
  const bool goes_on = std::ranges::any_of(allowed, [](uint32_t word) { return word != 0; });
  for (const auto& [token, form] : vocabulary_.first_forms()) {
    const uint32_t bit = 1u << (token % 32);
    uint32_t& word = allowed[static_cast<size_t>(token) / 32];
    word = form.empty() && goes_on ? word | bit : word & ~bit;
  }
  first_tokens_.add(&sets_, places, allowed, budget);
}

void Follower::append(Position* position, std::string_view bytes, Budget* budget) {
  const MutexLock lock(mutex_);
  SetId set = number(position, budget);
  for (const char c : bytes) set = sets_.step(set, static_cast<uint8_t>(c), budget);
  HEADRACE_CHECK(set != kNoPlaces, bytes.size());
  position->set = set;
  position->places = sets_.places(set);
}

}  // namespace headrace::grammar
