#pragma once

#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

struct ScaleArgs {
  DType dtype = DType::kF32;
  ConstMatrix x;  ///< [T, n]
  float factor = 1.0f;
  Matrix out;  ///< [T, n]; may be x
};

/// out = x * factor, rounded once. Moves 2*T*n elements.
void scale(const ScaleArgs& args, Stream stream);

}  // namespace headrace::cuda
