#pragma once

// Runs a program over a text, with an explicit stack of what is left to try.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/fuel.h"
#include "text/regex/program.h"

namespace headrace::text {

class Machine {
 public:
  Machine(const Program& program, std::string_view text, Fuel* fuel)
      : program_(program), text_(text), fuel_(*fuel), slots_(program.slots) {
    fuel_.spend(program.slots / 2);  // 16 bytes a step
  }

  struct Match {
    size_t begin;
    size_t end;
  };
  /// The first match at `from` or behind it. REQUIRES: from <= text size.
  std::optional<Match> find(size_t from);

 private:
  static constexpr size_t kMaxStack = 4u << 20;

  enum class Kind : uint8_t {
    kTry,     ///< on at `index`, at byte `a`
    kSlot,    ///< slot `index` was a, b
    kGreedy,  ///< a set loop's end at `a`, which may go back to `b`; on at `index`
    kLazy,    ///< a set loop, instruction `index`, that is at byte `a` after `b` characters
  };
  struct Entry {
    Kind kind;
    uint32_t index;
    uint32_t a;
    uint32_t b;
  };
  struct Slot {
    uint32_t a = 0;
    uint32_t b = 0;
  };

  /// Where to try next if no match begins at `start`.
  size_t next_start(size_t start);
  /// Does a match begin at `start`? Then `at_` is its end.
  bool match_at(size_t start);
  /// False: the instruction failed.
  bool step(const Instruction& now);
  bool count_step(const Instruction& now);
  bool look_step(const Instruction& now);
  bool set_loop(const Instruction& now);
  bool take(const FastSet& set);
  bool at_place(Place place) const;
  bool at_word_edge() const;
  bool go_back_one();
  /// Takes up what is left to try. False: nothing.
  bool backtrack();
  bool retry(Entry entry);
  void push(Kind kind, uint32_t index, uint32_t a, uint32_t b);
  void set_slot(uint32_t index, Slot value);
  void forget_to(uint32_t height);
  void unwind_to(uint32_t height);
  void count(size_t steps) {
    steps_ += steps;
    if (steps_ > allowed_) [[unlikely]] {
      fuel_.spend(steps_);
    }
  }

  const Program& program_;
  std::string_view text_;
  Fuel& fuel_;
  uint64_t allowed_ = 0;  ///< steps that `fuel_` has left
  uint64_t steps_ = 0;    ///< not charged yet
  uint32_t pc_ = 0;
  uint32_t at_ = 0;
  std::vector<Slot> slots_;
  std::vector<Entry> stack_;
};

}  // namespace headrace::text
