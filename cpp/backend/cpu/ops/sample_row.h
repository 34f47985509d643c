#pragma once

// Sampling one row: see Backend::sample for the order of operations and
// reference/reference_sample.h for what that leaves open.

#include <cstddef>

#include "backend/contract/sample_op.h"
#include "backend/cpu/ops/sample_vocabulary.h"

namespace headrace {

/// Scratch memory of sample_row() for one row.
size_t sample_row_scratch_bytes(int32_t vocab_size);

/// `logits` [passes.size()]: several rows may read the same ones. `scratch`: aligned to 64 bytes.
void sample_row(const VocabularyPasses& passes, const float* logits, const SampleRow& row,
                std::byte* scratch, SampleResult& result);

}  // namespace headrace
