#pragma once

// What the checks of ops say of one tensor. Each throws InternalError.

#include "backend/contract/backend.h"

namespace headrace {

/// A matrix of float32 of any size.
void check_matrix(const TensorView& x);
/// A matrix [rows, cols] of `dtype`.
void check_matrix(const TensorView& x, int64_t rows, int64_t cols, DType dtype = DType::kF32);
/// `n` elements of `dtype`, one behind the other.
void check_vector(const TensorView& x, int64_t n, DType dtype = DType::kF32);

}  // namespace headrace
