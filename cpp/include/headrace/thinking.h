#pragma once

// A limit on what a model thinks before it answers, and a constraint on the answer alone.
//
//   headrace::ThinkingLimits limits{.begin = {}, .end = {kThinkEnd}, .closing = {kThinkEnd},
//                                   .max_tokens = 1000};
//   options.constraint = headrace::limit_thinking(limits, grammar);

#include <cstdint>
#include <memory>
#include <vector>

#include "headrace/abi.h"
#include "headrace/token_constraint.h"

namespace headrace::inline v0 {

struct ThinkingLimits {
  /// Ids that open the thinking if the output begins with them; otherwise the output is all answer.
  /// Empty: the prompt has opened it.
  std::vector<int32_t> begin;
  /// Ids that close it. Not empty.
  std::vector<int32_t> end;
  /// What the model has to say when it has thought max_tokens. Not empty; `end` must be in it.
  std::vector<int32_t> closing;
  /// Tokens of thinking, without those of `begin` and `closing`, at most; -1: any number.
  int64_t max_tokens = -1;
};

/// While the model thinks, all tokens but its EOS may come, and after exactly max_tokens of them
/// only those of `closing`. Then `answer` begins, as if the output did; null: anything may come.
/// Throws Error(kInvalidArgument) for limits that make no sense.
HEADRACE_API std::shared_ptr<TokenConstraint> limit_thinking(
    const ThinkingLimits& limits, std::shared_ptr<TokenConstraint> answer);

}  // namespace headrace::inline v0
