#pragma once

#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

struct ReorderArgs {
  DType dtype = DType::kF32;       ///< of x and out
  ConstMatrix x;                   ///< [T, k]
  const int32_t* order = nullptr;  ///< [k], each in [0, k)
  Matrix out;                      ///< [T, k]
};

/// out[i][j] = x[i][order[j]]. Moves 2*T*k elements.
void reorder(const ReorderArgs& args, Stream stream);

}  // namespace headrace::cuda
