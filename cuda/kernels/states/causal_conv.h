#pragma once

#include "backend/contract/state_ops.h"
#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"
#include "cuda/kernels/states/state_step.h"

namespace headrace::cuda {

struct CausalConvArgs {
  DType dtype = DType::kF32;      ///< of x and out
  ConstMatrix x;                  ///< [T, spec.channels]
  const float* weight = nullptr;  ///< [spec.kernel][spec.channels]
  const float* bias = nullptr;    ///< [spec.channels], null: zeros
  ConvSpec spec;
  StateStep step;
  StateArray states;  ///< windows
  Matrix out;         ///< [T, spec.channels]; not x
};

/// See Backend::causal_conv. Moves 2*T*channels elements, kernel - 1 rows more for each 32 of a
/// slice, the weight once for each of these, and of each slice its window from state_in and to
/// every store.
void causal_conv(const CausalConvArgs& args, Stream stream);

}  // namespace headrace::cuda
