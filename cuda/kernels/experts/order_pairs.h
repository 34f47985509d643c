#pragma once

#include <cstdint>

#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/experts/expert_tile.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

struct OrderPairsArgs {
  DType dtype = DType::kF32;           ///< of x and out
  ConstMatrix x;                       ///< [T, k]
  const int32_t* pair_rows = nullptr;  ///< of x, of each pair
  const int32_t* orders = nullptr;     ///< [experts][k], each in [0, k)
  const ExpertTile* tiles = nullptr;   ///< as sort_pairs() lists them
  int64_t num_tiles = 0;
  Matrix out;  ///< [pairs, k]; rows of no pair stay as they are
};

/// out[i][j] = x[pair_rows[i]][orders[pair i's expert][j]]: rows as experts whose weights are
/// reordered want theirs. Moves 2*pairs*k elements.
void order_pairs(const OrderPairsArgs& args, Stream stream);

}  // namespace headrace::cuda
