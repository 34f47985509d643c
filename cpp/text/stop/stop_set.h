#pragma once

#include <span>
#include <string>
#include <vector>

#include "headrace/text_output.h"
#include "text/match/multi_match.h"

namespace headrace {

/// A set of stop strings, and what searches for them.
struct StopStrings::Set {
  explicit Set(std::span<const std::string> given)
      : strings(given.begin(), given.end()), automaton(strings) {}

  const std::vector<std::string> strings;
  const text::MultiMatch automaton;
};

}  // namespace headrace
