#pragma once

#include <cstdint>

#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/ranks/rank_links.h"

namespace headrace::cuda {

struct SendArgs {
  RankLinks links;
  uint32_t* words = nullptr;  ///< of this rank
  int64_t count = 0;          ///< they fit into a piece
};

/// Every rank's words = rank 0's.
void send_words(const SendArgs& args, Stream stream);

}  // namespace headrace::cuda
