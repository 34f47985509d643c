#pragma once

#include <cstddef>

#include "backend/contract/experts_op.h"
#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

struct RouteArgs {
  DType dtype = DType::kF32;          ///< of x
  ConstMatrix x;                      ///< [T, H]
  const float* gate = nullptr;        ///< [E, gate_stride], zeros behind H; aligned to 16
  int64_t gate_stride = 0;            ///< a multiple of 4
  const float* bias = nullptr;        ///< [E] or null: of the logits
  const float* correction = nullptr;  ///< [E] or null
  RouterSpec spec;
  float* logits = nullptr;  ///< [T, E], contents lost
  int32_t* ids = nullptr;   ///< [T, ids_stride]
  int64_t ids_stride = 0;
  float* weights = nullptr;  ///< [T, weights_stride]
  int64_t weights_stride = 0;
};

/// What RouterSpec says, for each row. A logit is the sum of 32 chains of fused multiply-adds over
/// ascending k, chain i of those k with k / 4 % 32 == i, added by a tree: whatever the other rows.
/// Moves gate and T*H elements.
void route(const RouteArgs& args, Stream stream);

}  // namespace headrace::cuda
