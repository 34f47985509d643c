#pragma once

#include <cstdint>

#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"
#include "cuda/kernels/ranks/rank_links.h"

namespace headrace::cuda {

struct GatherColumnsArgs {
  RankLinks links;
  DType dtype = DType::kF32;            ///< kF32, kBF16 or kF16
  int64_t begins[kMostRanks + 1] = {};  ///< rank r gives columns [begins[r], begins[r + 1])
  ConstMatrix part;                     ///< [T, its columns], of this rank
  Matrix out;                           ///< [T, begins[N]]; no data: this rank wants none
};

/// out = the ranks' parts side by side. Moves T*begins[N] numbers to each rank that has an out.
/// REQUIRES: a row of every part fits into a piece.
void gather_columns(const GatherColumnsArgs& args, Stream stream);

}  // namespace headrace::cuda
