#pragma once

#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

struct ScatterRowsArgs {
  DType dtype = DType::kF32;      ///< of both
  ConstMatrix x;                  ///< [T, H]
  const int32_t* rows = nullptr;  ///< [T] of `out`, all different, device memory
  Matrix out;                     ///< [any, H]
};

/// out[rows[i]] = x[i]. Moves 2*T*H elements.
void scatter_rows(const ScatterRowsArgs& args, Stream stream);

}  // namespace headrace::cuda
