#pragma once

#include "backend/contract/state_ops.h"
#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

struct GatedNormArgs {
  DType dtype = DType::kF32;      ///< of x, gate and out
  ConstMatrix x, gate;            ///< [T, n]
  const float* weight = nullptr;  ///< [n], or [spec.group] for all groups
  bool shares_weight = false;     ///< it has spec.group numbers
  GatedNormSpec spec;
  Matrix out;  ///< [T, n]; may be x
};

/// See Backend::gated_norm, with the bytes that it moves.
void gated_norm(const GatedNormArgs& args, Stream stream);

}  // namespace headrace::cuda
