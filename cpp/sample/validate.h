#pragma once

#include <cstdint>

#include "headrace/sampling_params.h"

namespace headrace {

/// Throws Error(kInvalidArgument) naming the first field out of range, its value and its range.
void validate_sampling_params(const SamplingParams& params, int32_t vocab_size);

}  // namespace headrace
