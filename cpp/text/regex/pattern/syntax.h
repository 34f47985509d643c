#pragma once

// A pattern as a tree.

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/regex/pattern/char_set.h"

namespace headrace::text {

inline constexpr uint32_t kNoLimit = UINT32_MAX;

enum class NodeKind : uint8_t {
  kChar,
  kSet,
  kSequence,  ///< of none, too: nothing
  kChoice,
  kRepeat,
  kAtomic,  ///< (?>..)
  kAhead,   ///< (?=..), (?!..)
  kBehind,  ///< (?<=..), (?<!..)
  kAssert,  ///< a place
};

enum class Greed : uint8_t { kGreedy, kLazy, kPossessive };

enum class Place : uint8_t {
  kTextStart,    ///< \A
  kTextEnd,      ///< \z
  kLastLineEnd,  ///< \Z
  kLineStart,    ///< ^
  kLineEnd,      ///< $
  kWordEdge,     ///< \b
  kNotWordEdge,  ///< \B
};

struct Node {
  NodeKind kind = NodeKind::kSequence;
  Greed greed = Greed::kGreedy;
  Place place = Place::kTextStart;
  bool negative = false;  ///< (?!..), (?<!..)
  char32_t value = 0;
  uint32_t set = 0;  ///< index into Syntax::sets
  uint32_t min = 0;
  uint32_t max = 0;       ///< kNoLimit: none
  uint32_t captures = 0;  ///< capturing groups just around it
  std::vector<uint32_t> children;
};

struct Syntax {
  std::vector<Node> nodes;
  std::vector<CharSet> sets;  ///< none twice
  uint32_t root = 0;
};

/// Throws Error(kCorruptFile), Error(kUnsupported) or Error(kLimitExceeded), with the place.
Syntax parse_pattern(std::string_view pattern);

}  // namespace headrace::text
