#pragma once

#include "cuda/device/rope.cuh"
#include "cuda/host/runtime/cuda_check.h"

namespace headrace::cuda {

struct RopeTableArgs {
  RopeAngles angles;
  const int32_t* positions = nullptr;  ///< [rows], device memory
  const int32_t* rope_lens = nullptr;  ///< [rows], device memory
  /// Device memory, both or none. [3][rows] positions on each axis, and [rotary_dim / 2] 0, 1 or 2:
  /// which of them each pair goes by, in place of `positions`.
  const int32_t* axis_positions = nullptr;
  const uint8_t* axes = nullptr;
  int64_t rows = 0;
  float* out = nullptr;  ///< [rows, rotary_dim]: cosines, then sines
  int64_t out_stride = 0;
};

/// See Backend::rope_table. Moves rows * rotary_dim * 4 bytes.
void rope_table(const RopeTableArgs& args, Stream stream);

}  // namespace headrace::cuda
