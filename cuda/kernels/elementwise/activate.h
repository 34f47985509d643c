#pragma once

#include "backend/contract/activation.h"
#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

struct ActivateArgs {
  DType dtype = DType::kF32;
  Activation kind = Activation::kSilu;
  Matrix x;  ///< [T, H]
};

/// x = f(x), computed in float32. Moves 2*T*H elements.
void activate(const ActivateArgs& args, Stream stream);

}  // namespace headrace::cuda
