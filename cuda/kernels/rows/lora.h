#pragma once

#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

/// A part of an adapter on the device: adds scale * B (A x) to columns [column, column + cols).
struct LoraPartArgs {
  const void* a = nullptr;  ///< [rank][k]
  const void* b = nullptr;  ///< [cols][rank]
  int32_t rank = 0;
  int32_t cols = 0;
  int32_t column = 0;
  int32_t scratch_column = 0;  ///< of its rank columns of the scratch
  float scale = 1.0f;
};

/// A row and its adapter's parts.
struct LoraRowArgs {
  int32_t row = 0;  ///< of x and out; the scratch row is the place in the list
  int32_t first_part = 0;
  int32_t num_parts = 0;
};

struct LoraArgs {
  DType dtype = DType::kF32;            ///< of x and out
  DType storage = DType::kF32;          ///< of the parts
  ConstMatrix x;                        ///< [T, k]
  const LoraPartArgs* parts = nullptr;  ///< device memory
  const LoraRowArgs* rows = nullptr;    ///< [num_rows] device memory
  int64_t num_rows = 0;
  int32_t max_parts = 0;  ///< most of any row
  int32_t max_rank = 0;   ///< largest of any part
  int32_t max_cols = 0;
  Matrix scratch;  ///< float32 [>= num_rows, scratch columns]
  Matrix out;      ///< [T, n]
};

/// See Backend::lora. Moves the adapters once for each of their rows (from the L2 cache but for the
/// first) and num_rows*(k + 2*n) elements.
void lora(const LoraArgs& args, Stream stream);

}  // namespace headrace::cuda
