#pragma once

// A layer's experts on rows that have chosen theirs: pairs are sorted by expert, multiplied with
// gate and up, then down, and each row's are added.

#include <cstddef>

#include "backend/contract/activation.h"
#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/linear/weight_layout.h"
#include "cuda/kernels/matrix.h"
#include "cuda/kernels/quant/quant_layout.h"

namespace headrace::cuda {

struct ExpertsShape {
  DType dtype = DType::kF32;  ///< of x, out and weights that aren't quantized
  int64_t rows = 0, top_k = 0, experts = 0;
  /// Ids of experts begin with it; what others would give is left out of the sums.
  int32_t first_expert = 0;
  WeightLayout gate_up, down;  ///< of one expert: [2 * I, H], [H, I]; see Experts
  /// As GroupedLinearArgs has it, but gate and up may be reordered: each expert's in its own way.
  QuantFormat gate_up_quant, down_quant;
  /// Of what lies between the products: as many rows come at once, but 16 at least. At 8 experts of
  /// 2048 x 768 these are 5,900 rows.
  int64_t most_pair_bytes = int64_t{256} << 20;
};

struct ExpertsArgs {
  ExpertsShape shape;
  ConstMatrix x;                 ///< [T, H]
  const int32_t* ids = nullptr;  ///< [T, ids_stride]: as route() gives them
  int64_t ids_stride = 0;
  const float* weights = nullptr;  ///< [T, weights_stride]
  int64_t weights_stride = 0;
  const void* gate_up = nullptr;  ///< [experts], one behind the other, aligned to 256
  const void* down = nullptr;
  /// [experts][gate_up.n] and [experts][H] of `dtype`, or null.
  const void* gate_up_bias = nullptr;
  const void* down_bias = nullptr;
  GateSpec gate = {};
  /// Rows from *used_rows on are padding: they take no work, and their results are zeros. Null:
  /// there are none.
  const int32_t* used_rows = nullptr;
  void* workspace = nullptr;  ///< experts_workspace_bytes(), aligned to 256
  Matrix out;                 ///< [T, H]
  int32_t multiprocessors = 132;
};

/// What the rows that are computed at once take; more rows than that come one part after the other.
size_t experts_workspace_bytes(const ExpertsShape& shape);

/// out[row] = the sum over the row's experts in ascending order, one float32 chain, of weight *
/// (down . gate_mul(gate_up . x + its bias) + its bias), of up alone activate() instead; each
/// product has the bits of linear(), or quant_linear(), of that row and expert alone, rounded to
/// `dtype`. Moves the weights of all experts that some row uses, and T*top_k*(2*H + 2*I) elements;
/// where gate and up are reordered, T*top_k*2*H more.
void experts(const ExpertsArgs& args, Stream stream);

}  // namespace headrace::cuda
