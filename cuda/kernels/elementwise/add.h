#pragma once

#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

struct AddArgs {
  DType dtype = DType::kF32;  ///< of both
  ConstMatrix x;              ///< [T, H]
  Matrix out;                 ///< [T, H]
};

/// out += x, rounded once. Moves 3*T*H elements.
void add(const AddArgs& args, Stream stream);

}  // namespace headrace::cuda
