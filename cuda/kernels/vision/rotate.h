#pragma once

#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

struct RotateArgs {
  DType dtype = DType::kF32;     ///< of x
  Matrix x;                      ///< [T, heads * head_dim]
  const float* table = nullptr;  ///< [T, head_dim]: half cosines, half sines
  int64_t table_stride = 0;
  int32_t heads = 0;
  int32_t head_dim = 0;  ///< even
};

/// See Backend::rotate. Moves 2*T*heads*head_dim elements and the table once.
void rotate(const RotateArgs& args, Stream stream);

}  // namespace headrace::cuda
