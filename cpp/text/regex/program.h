#pragma once

// A pattern as instructions of the backtracking machine.

#include <bitset>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "text/regex/pattern/char_set.h"
#include "text/regex/pattern/syntax.h"

namespace headrace::text {

enum class Op : uint8_t {
  kMatch,
  kBytes,        ///< the `b` bytes at `a` of Program::bytes
  kSet,          ///< one character of set `a`
  kSetLoop,      ///< `b` to `c` characters of set `a`
  kSplit,        ///< on at `a`; if that fails, at `b`
  kIfByte,       ///< on at `b` unless the next byte is in `a` of Program::byte_sets
  kJump,         ///< on at `a`
  kPlace,        ///< a place
  kCountStart,   ///< slot `a` counts from 0
  kCountNext,    ///< slot `a`: again while under `b`; then, up to `c`, again or out. Out is at `d`
  kCountUp,      ///< slot `a`
  kEmptyStart,   ///< slot `a` remembers the place
  kEmptyEnd,     ///< on at `b` if nothing was matched since then
  kMark,         ///< slot `a` remembers the place and the stack
  kMarkNot,      ///< likewise; if what comes next fails, on at `b`
  kCommit,       ///< forgets the alternatives since the mark
  kAheadEnd,     ///< likewise, and goes back to its place
  kNotEnd,       ///< fails as the mark
  kBehindStart,  ///< goes `b` characters back; slot `a` remembers the place and how many
  kBehindMore,   ///< goes one more back, up to `c`
  kBehindEnd,    ///< fails unless at the place that slot `a` remembers
};

struct Instruction {
  Op op = Op::kMatch;
  Greed greed = Greed::kGreedy;
  Place place = Place::kTextStart;
  uint32_t a = 0;
  uint32_t b = 0;
  uint32_t c = 0;
  uint32_t d = 0;
};

struct Program {
  std::vector<Instruction> code;
  std::string bytes;
  std::vector<FastSet> sets;
  std::vector<std::bitset<256>> byte_sets;
  uint32_t slots = 0;
  std::bitset<256> first_bytes;  ///< with which a match may begin
  bool may_be_empty = false;     ///< then the above doesn't count
};

Program compile_program(const Syntax& syntax);

}  // namespace headrace::text
