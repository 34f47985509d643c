#pragma once

#include <memory>

#include "backend/contract/backend.h"

namespace headrace {

/// The oracle: one thread, plain loops, sums in double, weights kept as float32 after rounding to
/// their storage dtype. `memory_limit` as in CpuBackendOptions. `quant_activations`,
/// `code_products`: what it says of itself (DeviceInfo); it has both kinds.
std::unique_ptr<Backend> make_reference_backend(
    size_t memory_limit = 0, Activations quant_activations = Activations::kInt8Groups,
    bool code_products = false);

}  // namespace headrace
