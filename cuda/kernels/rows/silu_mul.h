#pragma once

#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

struct SiluMulArgs {
  DType dtype = DType::kF32;
  ConstMatrix gate_up;  ///< [T, 2*I]: gate, then up
  Matrix out;           ///< [T, I]
};

/// out = silu(gate) * up, computed in float32, rounded once. Moves 3*T*I elements.
void silu_mul(const SiluMulArgs& args, Stream stream);

}  // namespace headrace::cuda
