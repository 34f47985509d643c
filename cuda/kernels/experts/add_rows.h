#pragma once

#include "cuda/host/cuda_check.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

struct AddRowsArgs {
  DType dtype = DType::kF32;
  ConstMatrix delta;  ///< [T, n]
  /// [H] with x [T, H]: a row's share of delta is sigmoid(x . gate). Null: all of it.
  const void* gate = nullptr;
  ConstMatrix x;
  Matrix out;  ///< [T, n]
};

/// out += delta, or += sigmoid(x . gate) * delta; float32, rounded once. The product is the sum of
/// 128 chains, element i in chain i % 128, added by a tree.
void add_rows(const AddRowsArgs& args, Stream stream);

}  // namespace headrace::cuda
