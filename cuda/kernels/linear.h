#pragma once

#include <cstddef>

#include "cuda/host/cuda_check.h"
#include "cuda/kernels/matrix.h"
#include "cuda/kernels/weight_layout.h"

namespace headrace::cuda {

/// Which kernels a linear may use. Both give a row the same bits every time; kOrdered also gives
/// it the same bits in every company, as kFastest does up to kMaxSkinnyRows.
enum class LinearPath : uint8_t {
  kOrdered,  ///< mma.sync alone: one order of sums for 1 row and for 4096
  kFastest,  ///< wgmma for many rows where the device has it
};

inline constexpr int64_t kMaxSkinnyRows = 32;

struct LinearArgs {
  DType dtype = DType::kF32;     ///< of x, the weight, bias and residual
  ConstMatrix x;                 ///< [T, k]
  const void* weight = nullptr;  ///< in `layout`, aligned to 256
  WeightLayout layout;
  const void* bias = nullptr;  ///< [n] or null
  /// [T, out.cols], added to the rounded sum, which is rounded once more: the bits of two ops. May
  /// be `out`; or no data.
  ConstMatrix residual;
  /// With layout.gate_up: out [T, n/2] = silu(gate) * up, with gate and up rounded to `dtype`
  /// first, so that silu_mul() after a plain linear() gives the same bits.
  bool silu_mul = false;
  DType out_dtype = DType::kF32;  ///< `dtype` or kF32
  Matrix out;                     ///< [T, n] (gate, then up), with silu_mul [T, n/2]
  void* workspace = nullptr;      ///< linear_workspace_bytes()
  int32_t multiprocessors = 132;  ///< of the device; decides about speed only
  LinearPath path = LinearPath::kOrdered;
  bool has_wgmma = false;  ///< the device is of compute capability 9.0
};

/// What linear() needs of workspace for up to `rows` rows.
size_t linear_workspace_bytes(int64_t rows, const WeightLayout& layout, int32_t multiprocessors);

/// out = x . W^T (+ bias) (+ residual), float32 sums. Moves the weight and T*(k + n) elements.
void linear(const LinearArgs& args, Stream stream);

}  // namespace headrace::cuda
