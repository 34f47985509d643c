#pragma once

// Kernels that a GPU must prove before requests rely on them.

#include <string>

#include "cuda/host/context.h"
#include "cuda/kernels/linear.h"

namespace headrace::cuda {

/// Type of cuda::linear.
using LinearOp = void (*)(const LinearArgs& args, Stream stream);

/// Why this GPU can't be trusted with the linears of compute capability 9.0
/// (LinearArgs::has_wgmma);
/// "" if it can. On small random problems they must give the bits of those for any GPU, for all
/// numbers of rows that kernels tell apart, launched one by one and from a graph. Takes some
/// milliseconds and 2 MiB, given back. Throws Error(kDevice) if the GPU is lost.
std::string try_wgmma_linears(CudaContext& context, LinearOp op);

}  // namespace headrace::cuda
