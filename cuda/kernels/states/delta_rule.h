#pragma once

#include "backend/contract/state_ops.h"
#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"
#include "cuda/kernels/states/state_step.h"

namespace headrace::cuda {

struct DeltaRuleArgs {
  DType dtype = DType::kF32;  ///< of qkv and out
  ConstMatrix qkv;            ///< [T, spec.qkv_columns()]
  ConstMatrix gates;          ///< float32 [T, 2 * spec.value_heads]
  DeltaSpec spec;
  StateStep step;
  StateArray states;  ///< matrices
  Matrix out;         ///< [T, spec.value_columns()]
};

/// See Backend::delta_rule. Moves T*value_columns elements twice, the key head's q and k of each
/// row once for every 16 columns of its values (from the L2 cache), and of each slice its matrices
/// from state_in and to every store.
void delta_rule(const DeltaRuleArgs& args, Stream stream);

}  // namespace headrace::cuda
