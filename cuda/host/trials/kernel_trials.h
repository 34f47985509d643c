#pragma once

// Kernels that a GPU must prove before requests rely on them, on small random problems. A trial
// takes some milliseconds and at most a few MiB, given back. It returns why this GPU can't be
// trusted with the kernels, "" if it can; a launch that is refused is a reason. All throw
// Error(kDevice) if the GPU is lost.

#include <string>

#include "cuda/host/runtime/context.h"
#include "cuda/kernels/attention/attention.h"
#include "cuda/kernels/experts/grouped_linear.h"
#include "cuda/kernels/linear/linear.h"
#include "cuda/kernels/quant/quant_linear.h"
#include "cuda/kernels/rows/rms_norm.h"
#include "cuda/kernels/rows/rope_kv_write.h"
#include "cuda/kernels/sample/sample.h"

namespace headrace::cuda {

/// Type of the ops' launch functions.
template <class Args>
using TrialOp = void (*)(const Args& args, Stream stream);

/// The linears of compute capability 9.0 (LinearArgs::has_wgmma). They must give the bits of those
/// for any GPU, for all numbers of rows that kernels tell apart, launched one by one and from a
/// graph.
std::string try_wgmma_linears(CudaContext& context, TrialOp<LinearArgs> op);

/// The linears of FP8 that meets FP8, likewise by compute capability 9.0. A row must have the same
/// bits for all numbers of rows, launched and from a graph, and the values of those for any GPU,
/// within what Hopper's short sums of e4m3 allow.
std::string try_wgmma_codes(CudaContext& context, TrialOp<QuantLinearArgs> op);

/// Attention by tensor cores, long pieces by wgmma if `has_wgmma`. A row must have the same bits in
/// a long piece and in short ones, launched and from a graph, and all rows the values of
/// AttentionArgs::plain, within what rounding allows.
std::string try_attention(CudaContext& context, TrialOp<AttentionArgs> op, bool has_wgmma);

/// The same over quantized KV caches, which wgmma has no part in.
std::string try_code_attention(CudaContext& context, TrialOp<AttentionArgs> op);

/// The linears of int4 and int8 weights. A row must have the same bits for few rows and for many,
/// launched and from a graph, and the values of its numbers' products within what rounding allows.
std::string try_quant_linears(CudaContext& context, TrialOp<QuantLinearArgs> op);

/// The same of int8 and FP8 weights whose rows are rounded; not by wgmma.
std::string try_rounded_linears(CudaContext& context, TrialOp<QuantLinearArgs> op);

/// Products of rows with their experts' matrices, in 16 bits, int4 and int8, in tiles of each size.
/// They must give the bits of the expert's own linear, launched and from a graph.
std::string try_experts(CudaContext& context, TrialOp<GroupedLinearArgs> op);

/// RMS norms, with what is added to a row and without, within what rounding allows.
std::string try_norms(CudaContext& context, TrialOp<RmsNormArgs> op);

/// RMS norms that write codes, too: the bits of the norm alone and of round_rows().
std::string try_rounding_norms(CudaContext& context, TrialOp<RmsNormArgs> op);

/// RoPE and what it writes to quantized KV caches: numbers within half a step of their codes.
std::string try_code_writes(CudaContext& context, TrialOp<RopeKvWriteArgs> op);

/// Sampling. Tokens must be those of reference_sample(), and log-probabilities theirs within 1e-4,
/// the same bits launched and from a graph.
std::string try_sampling(CudaContext& context, TrialOp<SampleArgs> op);

}  // namespace headrace::cuda
