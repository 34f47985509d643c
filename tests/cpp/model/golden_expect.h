#pragma once

// What a decoder must answer for a golden case: tests/golden/README.md derives what may differ.

#include "cpp/model/decoder_harness.h"
#include "cpp/model/golden_case.h"

namespace headrace {

/// The same tokens, and logits and log-probabilities within the case's float32 tolerances.
void expect_float32_answers(DecoderHarness& harness, const GoldenCase& golden);
/// Errors no larger than transformers' own in bfloat16: on average, and the largest one up to
/// `max_slack` times. REQUIRES: golden.bfloat16.present.
void expect_bfloat16_answers(DecoderHarness& harness, const GoldenCase& golden,
                             double max_slack = 1.0);
/// Of codes whose rows are rounded, too, which transformers left as they come. `oracle` rounds the
/// same rows; where sums in another order tip a row's number to the next code the other differs
/// from it, but by less than a tenth of what rounding rows does, in the root mean square of logits.
/// And that is no more than e4m3 allows.
void expect_rounded_answers(DecoderHarness& harness, DecoderHarness& oracle,
                            const GoldenCase& golden);

}  // namespace headrace
