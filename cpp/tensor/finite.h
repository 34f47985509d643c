#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace headrace {

/// Whether none of `count` adjacent kF32, kBF16 or kF16 is NaN or infinite. `data` has no
/// alignment.
bool all_finite(const void* data, DType dtype, int64_t count) noexcept;

/// Whether all are finite and stay so when they are rounded to `dtype`: kF32, kBF16 or kF16.
bool all_fit(const float* data, DType dtype, int64_t count) noexcept;

}  // namespace headrace
