#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>

#include "base/mutex.h"
#include "grammar/automaton/masks.h"
#include "grammar/automaton/places.h"
#include "grammar/automaton/vocabulary.h"

namespace headrace::grammar {

/// A program, followed from the call `start`.
struct Automaton {
  PlaceSets sets;
  NodeId start;
};

/// Where an output is. Of one Follower.
struct Position {
  Places places;
  uint64_t generation = 0;  ///< of the numbers of sets that `set` is one of
  SetId set = kNoPlaces;
};

/// Follows outputs, and remembers what it has found out. Any thread may call any method.
class Follower {
 public:
  /// The vocabulary must outlive this.
  Follower(const Vocabulary& vocabulary, Automaton automaton);

  Position begin(Budget* budget);
  /// Sets the bits of what may come next; all are 0 before. at_start: nothing has come yet. True:
  /// the output may end here.
  bool allow(Position* position, bool at_start, std::span<uint32_t> allowed, Budget* budget);
  void append(Position* position, std::string_view bytes, Budget* budget);

 private:
  SetId number(Position* position, Budget* budget) HEADRACE_REQUIRES(mutex_);
  const Mask& mask(SetId set, Budget* budget) HEADRACE_REQUIRES(mutex_);
  void change_first(const Places& places, std::span<uint32_t> allowed, Budget* budget)
      HEADRACE_REQUIRES(mutex_);

  const Vocabulary& vocabulary_;
  const NodeId start_;
  Mutex mutex_;
  PlaceSets sets_ HEADRACE_GUARDED_BY(mutex_);
  Masks tokens_ HEADRACE_GUARDED_BY(mutex_);
  Masks first_tokens_ HEADRACE_GUARDED_BY(mutex_);
  std::unordered_map<SetId, Mask> known_ HEADRACE_GUARDED_BY(mutex_);
  uint64_t generation_ HEADRACE_GUARDED_BY(mutex_) = 1;
};

}  // namespace headrace::grammar
