#pragma once

#include "backend/contract/activation.h"
#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

struct GateMulArgs {
  DType dtype = DType::kF32;
  ConstMatrix gate_up;  ///< [T, 2*I]: gate, then up
  Matrix out;           ///< [T, I]
  GateSpec gate = {};
};

/// out = what `gate` makes of gate and up, computed in float32, rounded once. Moves 3*T*I elements.
void gate_mul(const GateMulArgs& args, Stream stream);

}  // namespace headrace::cuda
