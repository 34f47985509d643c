#pragma once

#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

struct MulSigmoidArgs {
  DType dtype = DType::kF32;  ///< of both
  ConstMatrix gate;           ///< [T, n]
  Matrix out;                 ///< [T, n]
};

/// out *= sigmoid(gate), computed in float32, rounded once. Moves 3*T*n elements.
void mul_sigmoid(const MulSigmoidArgs& args, Stream stream);

}  // namespace headrace::cuda
