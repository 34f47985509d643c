#pragma once

#include "backend/contract/state_ops.h"
#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

struct DeltaPrepareArgs {
  DType dtype = DType::kF32;     ///< of qkv, b and a
  Matrix qkv;                    ///< [T, spec.qkv_columns()]
  ConstMatrix b, a;              ///< [T, spec.value_heads]
  const float* a_log = nullptr;  ///< [spec.value_heads], as the next one
  const float* dt_bias = nullptr;
  DeltaSpec spec;
  Matrix gates;  ///< float32 [T, 2 * spec.value_heads]
};

/// See Backend::delta_prepare, with the bytes that it moves. The sum of a head's squares: a lane's
/// chain over 8 neighbours, then a tree over the lanes.
void delta_prepare(const DeltaPrepareArgs& args, Stream stream);

}  // namespace headrace::cuda
