#pragma once

// Kernels that a GPU must prove before requests rely on them, on small random problems. A trial
// takes some milliseconds and at most a few MiB, given back. It returns why this GPU can't be
// trusted with the kernels, "" if it can; a launch that is refused is a reason. All throw
// Error(kDevice) if the GPU is lost.

#include <string>

#include "cuda/host/context.h"
#include "cuda/kernels/attention.h"
#include "cuda/kernels/linear.h"
#include "cuda/kernels/sample.h"

namespace headrace::cuda {

/// Type of the ops' launch functions.
template <class Args>
using TrialOp = void (*)(const Args& args, Stream stream);

/// The linears of compute capability 9.0 (LinearArgs::has_wgmma). They must give the bits of those
/// for any GPU, for all numbers of rows that kernels tell apart, launched one by one and from a
/// graph.
std::string try_wgmma_linears(CudaContext& context, TrialOp<LinearArgs> op);

/// Attention by tensor cores, long pieces by wgmma if `has_wgmma`. A row must have the same bits in
/// a long piece and in short ones, launched and from a graph, and all rows the values of
/// AttentionArgs::plain, within what rounding allows.
std::string try_attention(CudaContext& context, TrialOp<AttentionArgs> op, bool has_wgmma);

/// Sampling. Tokens must be those of reference_sample(), and log-probabilities theirs within 1e-4.
std::string try_sampling(CudaContext& context, TrialOp<SampleArgs> op);

}  // namespace headrace::cuda
