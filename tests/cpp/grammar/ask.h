#pragma once

#include <cstdint>
#include <vector>

#include "headrace/token_constraint.h"

namespace headrace {

using Ids = std::vector<int32_t>;

/// What a matcher says of the next token.
struct Answer {
  Ids tokens;
  bool may_end;
  bool operator==(const Answer&) const = default;
};

/// words: of the mask, 32 ids each.
inline Answer ask(TokenMatcher& matcher, size_t words = 1) {
  std::vector<uint32_t> allowed(words);
  Answer out{{}, matcher.next(allowed)};
  for (size_t i = 0; i < words * 32; ++i) {
    if ((allowed[i / 32] >> (i % 32) & 1u) != 0) out.tokens.push_back(static_cast<int32_t>(i));
  }
  return out;
}

}  // namespace headrace
