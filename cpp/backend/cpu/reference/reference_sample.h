#pragma once

#include <cstdint>
#include <span>

#include "backend/sample_op.h"
#include "tensor/tensor_view.h"

namespace headrace {

/// The oracle of Backend::sample: sorts the whole vocabulary.
void reference_sample(TensorView logits, int32_t vocab_size, std::span<const SampleRow> rows,
                      std::span<SampleResult> results);

}  // namespace headrace
