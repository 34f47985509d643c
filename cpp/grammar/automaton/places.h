#pragma once

// Where in a program an output may be: sets of places, followed byte by byte.

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "grammar/automaton/program.h"

namespace headrace::grammar {

/// One place: within an expression of a node, of which `rest` is left, in the call `frame`.
struct Place {
  Expr rest;
  NodeId node;
  uint32_t frame;
  auto operator<=>(const Place&) const = default;
};

/// All places at once, sorted.
struct Places {
  std::vector<Place> list;
  bool may_end = false;
  bool operator==(const Places&) const = default;
};

/// A set of places by its number.
using SetId = uint32_t;
inline constexpr SetId kNoPlaces = 0;  ///< nothing may follow, not even the end

/// Follows outputs of one program. A value: copies are independent.
class PlaceSets {
 public:
  /// max_sets: that a call may need; max_frames: of all outputs. More throw Error(kLimitExceeded).
  PlaceSets(Program program, Expressions expressions, size_t max_sets, size_t max_frames);

  /// At `start`, which is a call of the outermost rule.
  Places start(NodeId start, Budget* budget);
  /// Behind the expression of a place that has come to its end. Not of a menu.
  SetId behind(const Place& place, Budget* budget);

  SetId number(const Places& places, Budget* budget);
  const Places& places(SetId id) const { return sets_[id]; }
  SetId step(SetId id, uint8_t byte, Budget* budget) {
    const uint8_t byte_class = expressions_.class_of(byte);
    const SetId known = steps_[id * classes_ + byte_class];
    return known != kUnknown ? known : find_step(id, byte_class, budget);
  }

  /// Between calls: forgets the sets' numbers if they take too much room. True: it has.
  bool tidy();

  Expressions* expressions() { return &expressions_; }
  const Program& program() const { return program_; }

 private:
  /// A call that hasn't come to its end: where it goes on then, in which frame.
  struct Frame {
    NodeId next;
    uint32_t count;
    uint32_t parent;
    bool operator==(const Frame&) const = default;
  };
  struct FrameHash {
    size_t operator()(const Frame& frame) const;
  };
  struct Pending {
    NodeId node;
    uint32_t frame;
    auto operator<=>(const Pending&) const = default;
  };

  static constexpr uint32_t kNoFrame = 0;  // of the program as a whole
  static constexpr SetId kUnknown = UINT32_MAX;

  uint32_t frame_number(const Frame& frame);
  void close(Pending from, Places* out, Budget* budget);
  void enter(const Pending& at, std::vector<Pending>* waiting, Places* out, Budget* budget);
  uint32_t called(const ProgramNode& node, uint32_t frame);
  static void sort(Places* places);
  SetId find_step(SetId id, uint8_t byte_class, Budget* budget);
  void forget_sets();

  Program program_;
  Expressions expressions_;
  size_t classes_;
  size_t max_sets_;
  size_t max_frames_;
  std::vector<Frame> frames_;
  std::unordered_map<Frame, uint32_t, FrameHash> frame_numbers_;
  std::vector<Places> sets_;
  std::unordered_multimap<size_t, SetId> set_numbers_;  // by hash
  std::vector<SetId> steps_;
  size_t place_count_ = 0;  // in all sets
};

}  // namespace headrace::grammar
