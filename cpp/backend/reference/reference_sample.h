#pragma once

// Backend::sample, plainly: sorts the vocabulary and computes in double. The oracle of the fast
// sampler; backend.h gives the order of operations, and this is what it leaves open:
//
// * A row that is not finite is drawn from all the same: NaN counts as -inf, in the logits and
// where an infinite bias meets an infinite logit. Tokens
//   at +inf share all the probability equally. Zeros are equal whatever their sign.
// * Order: larger processed logit first, then lower id. Everything step 9 keeps is a prefix of
//   this order, so that of equal logits at the edge of top_k or top_p the lower ids stay.
// * Sums of probabilities and the comparisons with top_p * sum and u * sum are made in double;
//   top_p keeps up to the first token at which the sum reaches top_p * sum, and the draw takes
//   the first at which it exceeds u * sum. min_p compares exp(l - max) with min_p.
// * Edits (bias, seen, masked, banned) of ids outside [0, vocab_size) have no effect.
// * temperature_scaled_logprobs and top_p_normalized_logprobs act on kRawLogprobs only; a greedy
//   row counts as temperature 1.
// * rank and the order of `top` compare the logits that the values were read from. `top` has
//   min(num_logprobs, vocab_size) entries, tokens at -inf included; what top_p_normalized_logprobs
//   drops is at -inf.
// * Several rows may name the same row of logits.

#include <cstdint>
#include <span>
#include <vector>

#include "backend/contract/sample_op.h"
#include "tensor/tensor_view.h"

namespace headrace {

/// `logits` [S, V'] f32 in host memory; unchanged. One result for each row.
void reference_sample(TensorView logits, int32_t vocab_size, std::span<const SampleRow> rows,
                      std::span<SampleResult> results);

/// The final distribution of one row after step 9: probabilities by token id (all zero if every
/// token is at -inf). For tests of the draws.
std::vector<double> reference_distribution(const float* logits, int32_t vocab_size,
                                           const SampleRow& row);

}  // namespace headrace
