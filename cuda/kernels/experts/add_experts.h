#pragma once

#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

struct AddExpertsArgs {
  DType dtype = DType::kF32;        ///< of pairs and out
  ConstMatrix pairs;                ///< [pairs, H]: what each expert gave
  const int32_t* places = nullptr;  ///< [T, top_k]: rows of `pairs`, -1: none
  const float* weights = nullptr;   ///< [T, weights_stride]
  int64_t weights_stride = 0;
  int64_t top_k = 0;
  Matrix out;  ///< [T, H]
};

/// out = the weighted sum of a row's pairs in the order of its list, one chain of float32 fused
/// multiply-adds, rounded once. Moves T*(top_k + 1)*H elements.
void add_experts(const AddExpertsArgs& args, Stream stream);

}  // namespace headrace::cuda
