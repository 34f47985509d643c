#pragma once

#include <cstddef>

#include "backend/contract/activation.h"
#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/linear/linear_plan.h"
#include "cuda/kernels/linear/weight_layout.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

struct LinearArgs {
  DType dtype = DType::kF32;     ///< of x, the weight, bias and residual
  ConstMatrix x;                 ///< [T, k]
  const void* weight = nullptr;  ///< in `layout`, aligned to 256
  WeightLayout layout;
  const void* bias = nullptr;  ///< [n] or null
  /// [T, out.cols], added to the rounded sum, which is rounded once more: the bits of two ops. May
  /// be `out`; or no data.
  ConstMatrix residual;
  /// With layout.gate_up: out [T, n/2] = what `gate` makes of gate and up, rounded to `dtype`
  /// first, so that gate_mul() after a plain linear() gives the same bits.
  bool gate_mul = false;
  GateSpec gate = {};
  DType out_dtype = DType::kF32;  ///< `dtype` or kF32
  Matrix out;                     ///< [T, n] (gate, then up), with gate_mul [T, n/2]
  int32_t multiprocessors = 132;  ///< of the device; decides about speed only
  /// The device is of compute capability 9.0, and its tensor copies and wgmma may be used: faster,
  /// the same bits (mma.cuh).
  bool has_wgmma = false;
  /// How wgmma's kernels cut the product: tests, trials and benchmarks say so. Null: by
  /// plan_linear(), with more than a few rows.
  const LinearPlan* plan = nullptr;
};

/// out = x . W^T (+ bias) (+ residual). float32 sums: 16-bit elements in steps of 16 k, each a
/// tensor core's one, ascending from 0; float32 in one chain of fused multiply-adds. A row's bits
/// depend on the row alone. Moves the weight and T*(k + n) elements.
void linear(const LinearArgs& args, Stream stream);

}  // namespace headrace::cuda
