#pragma once

#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

struct LayerNormArgs {
  DType dtype = DType::kF32;     ///< of everything
  ConstMatrix x;                 ///< [T, H]
  const void* weight = nullptr;  ///< [H]
  const void* bias = nullptr;    ///< [H], null: none
  float eps = 1e-6f;
  Matrix out;  ///< [T, H]; may be x
};

/// out = (x - mean) / sqrt(var + eps) * weight + bias, rounded once; var is the mean of
/// (x - mean)^2. Moves 2*T*H elements.
void layer_norm(const LayerNormArgs& args, Stream stream);

}  // namespace headrace::cuda
