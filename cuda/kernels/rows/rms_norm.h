#pragma once

#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"
#include "cuda/kernels/rounded/round_rows.h"

namespace headrace::cuda {

struct RmsNormArgs {
  DType dtype = DType::kF32;     ///< of everything but the weight
  Matrix x;                      ///< [T, H]; with `delta` it is overwritten by x + delta
  ConstMatrix delta;             ///< [T, H] or no data
  const void* weight = nullptr;  ///< [H], null: ones
  float eps = 1e-6f;
  Matrix out;               ///< [T, H]; may be x (without delta) or delta
  RoundedOut rounded = {};  ///< of `out`; data only if norm_can_round()
  /// The weight is float32, whatever `dtype` is.
  bool float_weight = false;
};

/// Whether rms_norm() can write codes, too: rows are whole vectors of 16 bytes.
bool norm_can_round(const RmsNormArgs& args);

/// x += delta (rounded to the dtype), then out = x / sqrt(mean(x^2) + eps) * weight, rounded once.
/// Moves 2*T*H elements, with delta 4*T*H, and a byte for each code.
void rms_norm(const RmsNormArgs& args, Stream stream);

}  // namespace headrace::cuda
