#pragma once

#include "cuda/device/platform.cuh"

namespace headrace::cuda {

/// silu(gate) * up in float32: one formula for the op and for the linear's epilogue.
__device__ inline float silu_mul_of(float gate, float up) {
  return gate / (1.0f + expf(-gate)) * up;
}

}  // namespace headrace::cuda
