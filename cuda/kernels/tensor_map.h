#pragma once

// What the copy engine of sm_90 copies from: a parameter of kernels.

#include "cuda/kernels/matrix.h"

#if defined(HEADRACE_CUDA_EMULATION)
#include "cuda_emulation.h"
#else
#include <cuda.h>
#endif

namespace headrace::cuda {

#if defined(HEADRACE_CUDA_EMULATION)
using TensorMap = emulation::TensorMap;
#else
using TensorMap = CUtensorMap;
#endif

inline constexpr int kBoxColumns = 64;  ///< 128 bytes, which the swizzle takes

/// Boxes of kBoxColumns x `box_rows` (up to 256) of a 16-bit matrix, as copy_box() lays them into
/// shared memory: rows of 128 bytes, swizzled in groups of 8; zeros beyond the edges.
/// REQUIRES: data and rows aligned to 16 bytes, at least one row.
TensorMap make_tensor_map(const ConstMatrix& matrix, DType dtype, int box_rows);

}  // namespace headrace::cuda
