#pragma once

#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

struct GatherRowsArgs {
  DType dtype = DType::kF32;
  ConstMatrix x;
  const int32_t* rows = nullptr;  ///< [out.rows], device memory
  Matrix out;
};

/// out[i] = x[rows[i]]. Moves 2*S*H elements.
void gather_rows(const GatherRowsArgs& args, Stream stream);

}  // namespace headrace::cuda
