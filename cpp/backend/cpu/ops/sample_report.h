#pragma once

// Log-probabilities, rank and best tokens of a sampled row.

#include "backend/contract/sample_op.h"
#include "backend/cpu/ops/sample_tokens.h"

namespace headrace {

/// Fills everything but `token` of `result`. `values`: the logits that the row's mode reads from;
/// overwritten. `memory`: see BestTokens.
void report_logprobs(const VocabularyPasses& passes, RowValues values, const SampleRow& row,
                     Candidate* memory, SampleResult& result);

}  // namespace headrace
