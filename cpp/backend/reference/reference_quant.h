#pragma once

// What quantized weights mean (kernels_quant.h), in scalars and doubles.

#include <cstdint>

#include "backend/contract/quant_format.h"
#include "backend/contract/weight_codes.h"

namespace headrace {

/// A row of weights becomes what it reads as after it was quantized.
void reference_round_weights(const QuantFormat& format, int64_t k, float* row);

/// A feature of weights that come as codes, its inputs in the codes' order.
void reference_read_codes(const WeightCodes& codes, int64_t feature, int64_t k, float* row);

/// The product of activations, rounded by groups if the format says so, with a row of such weights.
double reference_quant_dot(const QuantFormat& format, const float* x, const float* weights,
                           int64_t k);

}  // namespace headrace
