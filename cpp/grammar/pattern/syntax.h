#pragma once

// A pattern as a tree.

#include <cstdint>
#include <string_view>
#include <vector>

#include "grammar/automaton/budget.h"
#include "text/regex/pattern/char_set.h"

namespace headrace::grammar {

struct PatternNode {
  enum class Kind : uint8_t { kSet, kSequence, kChoice, kRepeat, kStart, kEnd };
  Kind kind;
  uint32_t set = 0;  ///< index into PatternTree::sets
  uint32_t min = 0;
  uint32_t max = 0;
  std::vector<uint32_t> children = {};
};

struct PatternTree {
  std::vector<PatternNode> nodes;
  std::vector<text::CharSet> sets;
  uint32_t root = 0;
};

/// ecma: see PatternRules. Throws what read_pattern does.
PatternTree parse_pattern(std::string_view pattern, bool ecma, Budget* budget);

}  // namespace headrace::grammar
