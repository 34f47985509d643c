#pragma once

#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

struct AddGatedArgs {
  DType dtype = DType::kF32;
  ConstMatrix delta;           ///< [T, n]
  const void* gate = nullptr;  ///< [H]
  ConstMatrix x;               ///< [T, H]
  Matrix out;                  ///< [T, n]
};

/// out += sigmoid(x . gate) * delta; float32, rounded once. The product is the sum of
/// 128 chains, element i in chain i % 128, added by a tree.
void add_gated(const AddGatedArgs& args, Stream stream);

}  // namespace headrace::cuda
