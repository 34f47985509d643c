#pragma once

#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"
#include "cuda/kernels/ranks/rank_links.h"

namespace headrace::cuda {

struct AllReduceArgs {
  RankLinks links;
  DType dtype = DType::kF32;
  Matrix x;  ///< of this rank; rows without gaps
};

/// x = the sum of all ranks' x, added in the order of the ranks in float32 and rounded once: the
/// same bits on every rank, for every number of rows. Few bytes: each rank reads all ranks' rows
/// (one exchange); many: each adds up its share of them, and then all read all shares (two). A rank
/// reads (N - 1) times its bytes from the others, or 2 (N - 1) / N times.
void all_reduce(const AllReduceArgs& args, Stream stream);

}  // namespace headrace::cuda
