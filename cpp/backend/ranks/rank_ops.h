#pragma once

// Arguments of Backend's ops for ranks.

#include "backend/ranks/rank_group.h"
#include "tensor/tensor_view.h"

namespace headrace {

/// Arguments of all_reduce_add_rms_norm(), which are those of the two ops that it replaces.
struct ReduceAddNorm {
  TensorView delta;     ///< [T, n], contents lost
  TensorView residual;  ///< [T, n], added to
  TensorView norm;      ///< [n], as rms_norm() has its weight
  float eps = 1e-6f;
  TensorView out;  ///< [T, n]; may be delta
};

}  // namespace headrace
