#pragma once

// Products of pairs of rows and experts with each expert's own matrix; or of all rows' groups of
// columns, each with its own.

#include "backend/contract/activation.h"
#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/experts/expert_tile.h"
#include "cuda/kernels/linear/weight_layout.h"
#include "cuda/kernels/matrix.h"
#include "cuda/kernels/quant/quant_layout.h"

namespace headrace::cuda {

struct GroupedLinearArgs {
  DType dtype = DType::kF32;  ///< of all, but for a quantized weight
  ConstMatrix x;              ///< [.., k]
  /// Pair i takes row pair_rows[i] of x; null: row i.
  const int32_t* pair_rows = nullptr;
  const void* weight = nullptr;  ///< of expert 0, aligned to 256; the next follows
  WeightLayout layout;           ///< of one
  /// Of a weight in QuantLayout: not reordered, activations as they come or rounds_rows(). bits 0:
  /// it is of `dtype`.
  QuantFormat quant;
  /// Of a format that rounds_rows(): where all rows of x lie as codes meanwhile,
  /// RoundedRows::bytes() of x.rows, aligned to 16; and how many of them there are, on the GPU.
  /// Null: all.
  void* rounded = nullptr;
  const int32_t* used_rows = nullptr;
  bool gate_mul = false;  ///< as LinearArgs has it, and the next
  GateSpec gate = {};
  const void* bias = nullptr;  ///< `dtype` [experts][n] or null
  Matrix out;                  ///< [pairs, n], with gate_mul [pairs, n/2]
  /// Null: matrix g has all rows, but only the columns of x from g * x_step on, and of out from
  /// g * out_step on; x.cols and out.cols are those of one. Not of a quantized weight.
  const ExpertTile* tiles = nullptr;
  /// Of the list; those without rows do nothing. Without a list: ceil(rows / tile_rows) for each
  /// matrix.
  int64_t num_tiles = 0;
  int32_t tile_rows = 0;  ///< of one at most: what grouped_tile_rows() says
  int64_t x_step = 0, out_step = 0;
  int32_t multiprocessors = 132;
};

/// Rows of a tile for `rows` rows that choose top_k of `experts` experts each: decides about speed
/// only. `quantized`: some of the weights are.
int32_t grouped_tile_rows(DType dtype, bool quantized, int64_t rows, int64_t top_k,
                          int64_t experts);

/// Row i of `out` is linear(), or quant_linear(), of pair i with its expert's matrix, bit for bit;
/// and so is a row's group of columns. Moves the weights of the experts that have tiles, once for
/// each of their tiles.
void grouped_linear(const GroupedLinearArgs& args, Stream stream);

}  // namespace headrace::cuda
