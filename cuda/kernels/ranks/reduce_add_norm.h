#pragma once

#include "cuda/kernels/ranks/rank_links.h"
#include "cuda/kernels/rows/rms_norm.h"

namespace headrace::cuda {

struct ReduceAddNormArgs {
  RankLinks links;
  RmsNormArgs norm;  ///< norm.delta: this rank's, rows without gaps
};

/// Whether reduce_add_norm() takes it: no more rows than links.most_blocks, for each has a block
/// that waits for the other ranks, of few bytes, all of whole vectors of 16 bytes.
bool takes_reduce_add_norm(const ReduceAddNormArgs& args);

/// all_reduce() of the delta and then rms_norm(): their bits, in two kernels instead of three. The
/// delta stays as it is.
void reduce_add_norm(const ReduceAddNormArgs& args, Stream stream);

}  // namespace headrace::cuda
