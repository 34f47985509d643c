#pragma once

#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

struct MultiplyArgs {
  DType dtype = DType::kF32;  ///< of all three
  ConstMatrix a, b;           ///< [T, n]
  Matrix out;                 ///< [T, n]; may be a or b
};

/// out = a * b, computed in float32, rounded once. Moves 3*T*n elements.
void multiply(const MultiplyArgs& args, Stream stream);

}  // namespace headrace::cuda
