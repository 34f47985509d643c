#pragma once

// What Backend's ops of ranks are told.

#include "backend/ranks/rank_group.h"
#include "tensor/tensor_view.h"

namespace headrace {

/// What all_reduce_add_rms_norm() works on, as the two ops it stands for have it.
struct ReduceAddNorm {
  TensorView delta;     ///< [T, n], contents lost
  TensorView residual;  ///< [T, n], added to
  TensorView norm;      ///< [n]
  float eps = 1e-6f;
  TensorView out;  ///< [T, n]; may be delta
};

}  // namespace headrace
