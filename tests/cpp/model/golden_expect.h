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

}  // namespace headrace
