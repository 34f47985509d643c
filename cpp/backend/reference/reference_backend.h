#pragma once

#include <memory>

#include "backend/contract/backend.h"
#include "backend/reference/reference_quant.h"

namespace headrace {

/// The oracle: one thread, plain loops, sums in double, weights kept as float32 after rounding to
/// their storage dtype. `memory_limit` as in CpuBackendOptions. `quant_activations`,
/// `code_products`: what it says of itself (DeviceInfo); it has both kinds. `float8_sum`: instead
/// of exact sums of e4m3 codes by codes, for tests of a device whose are shorter; experts' stay
/// exact.
std::unique_ptr<Backend> make_reference_backend(
    size_t memory_limit = 0, Activations quant_activations = Activations::kInt8Groups,
    bool code_products = false, Float8Sum float8_sum = nullptr);

}  // namespace headrace
