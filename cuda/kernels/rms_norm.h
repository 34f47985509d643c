#pragma once

#include "cuda/host/cuda_check.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

struct RmsNormArgs {
  DType dtype = DType::kF32;     ///< of everything
  Matrix x;                      ///< [T, H]; with `delta` it is overwritten by x + delta
  ConstMatrix delta;             ///< [T, H] or no data
  const void* weight = nullptr;  ///< [H]
  float eps = 1e-6f;
  Matrix out;  ///< [T, H]; may be x (without delta) or delta
};

/// x += delta (rounded to the dtype), then out = x / sqrt(mean(x^2) + eps) * weight, rounded once.
/// Moves 2*T*H elements, with delta 4*T*H.
void rms_norm(const RmsNormArgs& args, Stream stream);

}  // namespace headrace::cuda
