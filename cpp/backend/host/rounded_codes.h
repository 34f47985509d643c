#pragma once

// Numbers as codes of a format that rounds_rows() (quant_format.h): weights at load as activations
// are in each step.

#include <span>

#include "backend/contract/quant_format.h"

namespace headrace {

float largest_size(std::span<const float> numbers);

/// A group of at most kMaxQuantGroup numbers with the scale that `top`, the largest size among all
/// that share it, makes. REQUIRES: finite numbers.
void round_like_activations(const QuantFormat& format, std::span<const float> numbers, float top,
                            QuantizedGroup* out);

/// What a code stands for, times its scale in float32.
float code_number(const QuantFormat& format, uint8_t code, float scale);

}  // namespace headrace
