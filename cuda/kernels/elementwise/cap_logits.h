#pragma once

#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

struct CapLogitsArgs {
  Matrix logits;  ///< float32 [S, V]
  float factor = 1.0f;
  float cap = 0.0f;  ///< 0: none
};

/// See Backend::cap_logits. Moves 2*S*V*4 bytes.
void cap_logits(const CapLogitsArgs& args, Stream stream);

}  // namespace headrace::cuda
