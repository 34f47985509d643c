#pragma once

// Kernels that a GPU must prove before requests rely on them, on small random problems. A trial
// takes some milliseconds and at most a few MiB, given back. It returns why this GPU can't be
// trusted with the kernels, "" if it can; a launch that is refused is a reason. All throw
// Error(kDevice) if the GPU is lost.

#include <string>

#include "cuda/host/runtime/context.h"
#include "cuda/kernels/attention/attention.h"
#include "cuda/kernels/elementwise/activate.h"
#include "cuda/kernels/experts/add_experts.h"
#include "cuda/kernels/experts/grouped_linear.h"
#include "cuda/kernels/experts/sort_pairs.h"
#include "cuda/kernels/linear/linear.h"
#include "cuda/kernels/quant/quant_linear.h"
#include "cuda/kernels/route/route.h"
#include "cuda/kernels/rows/embed.h"
#include "cuda/kernels/rows/gather_rows.h"
#include "cuda/kernels/rows/layer_norm.h"
#include "cuda/kernels/rows/lora.h"
#include "cuda/kernels/rows/rms_norm.h"
#include "cuda/kernels/rows/rope_kv_write.h"
#include "cuda/kernels/sample/sample.h"
#include "cuda/kernels/vision/rotate.h"
#include "cuda/kernels/vision/segment_attention.h"

namespace headrace::cuda {

/// Type of the ops' launch functions.
template <class Args>
using TrialOp = void (*)(const Args& args, Stream stream);

/// The linears of 16-bit weights for any GPU. A row must have the same bits for few rows and for
/// many, in each kernel, launched and from a graph, and the values of its numbers' products within
/// what rounding allows: with a bias, SiLU and a residual.
std::string try_linears(CudaContext& context, TrialOp<LinearArgs> op);

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

/// What attention depends on.
struct AttentionHeads {
  DType dtype = DType::kBF16, cache = DType::kBF16;
  int32_t head_dim = 128;
  int32_t block_size = 16;
  bool latent = false;  ///< a latent row is the head of key and value

  AttentionKind kind(float scale) const {
    return {dtype, cache, head_dim, block_size, scale, 0.0f, latent};
  }
};

/// The same with one model's heads, whether its cache has codes or not.
std::string try_heads(CudaContext& context, TrialOp<AttentionArgs> op, bool has_wgmma,
                      const AttentionHeads& heads);

/// Plain attention over a cache of 16 bits with one model's heads: the host's values, within what
/// rounding allows.
std::string try_plain_heads(CudaContext& context, TrialOp<AttentionArgs> op,
                            const AttentionHeads& heads);

/// The linears of int4 and int8 weights. A row must have the same bits for few rows and for many,
/// launched and from a graph, and the values of its numbers' products within what rounding allows.
std::string try_quant_linears(CudaContext& context, TrialOp<QuantLinearArgs> op);

/// The same by compute capability 9.0, with the bits of those for any GPU.
std::string try_wgmma_quant_linears(CudaContext& context, TrialOp<QuantLinearArgs> op);

/// The same of int8 and FP8 weights whose rows are rounded; not by wgmma.
std::string try_rounded_linears(CudaContext& context, TrialOp<QuantLinearArgs> op);

/// Products of rows with their experts' matrices, in 16 bits, int4 and int8, in tiles of each size.
/// They must give the bits of the expert's own linear, launched and from a graph.
std::string try_experts(CudaContext& context, TrialOp<GroupedLinearArgs> op);

/// The same of int8 and FP8 weights whose rows are rounded.
std::string try_rounded_experts(CudaContext& context, TrialOp<GroupedLinearArgs> op);

/// RMS norms, with what is added to a row and without, within what rounding allows.
std::string try_norms(CudaContext& context, TrialOp<RmsNormArgs> op);

/// RMS norms that write codes, too: the bits of the norm alone and of round_rows().
std::string try_rounding_norms(CudaContext& context, TrialOp<RmsNormArgs> op);

/// Norms and RoPE of queries and keys, and what is written to KV caches of 16 bits: values within
/// what rounding allows.
std::string try_half_writes(CudaContext& context, TrialOp<RopeKvWriteArgs> op);

/// RoPE and what it writes to quantized KV caches: numbers within half a step of their codes.
std::string try_code_writes(CudaContext& context, TrialOp<RopeKvWriteArgs> op);

struct CopyOps {
  TrialOp<EmbedArgs> embed = cuda::embed;
  TrialOp<GatherRowsArgs> gather_rows = cuda::gather_rows;
};
/// Rows of tokens, of which one was drawn on the GPU, and chosen ones of them.
std::string try_copies(CudaContext& context, const CopyOps& ops);

/// What adapters add, within what rounding allows.
std::string try_lora(CudaContext& context, TrialOp<LoraArgs> op, DType dtype);

struct ExpertOps {
  TrialOp<RouteArgs> route = cuda::route;
  TrialOp<SortPairsArgs> sort_pairs = cuda::sort_pairs;
  TrialOp<AddExpertsArgs> add_experts = cuda::add_experts;
};
/// Experts that are chosen must be those of reference_route_row(), their weights within 1e-5; their
/// pairs in order, and sums the host's bits.
std::string try_choices(CudaContext& context, const ExpertOps& ops);

struct TowerOps {
  TrialOp<SegmentAttentionArgs> segment_attention = cuda::segment_attention;
  TrialOp<LayerNormArgs> layer_norm = cuda::layer_norm;
  TrialOp<RotateArgs> rotate = cuda::rotate;
  TrialOp<ActivateArgs> activate = cuda::activate;
};
/// The ops of vision towers, within what rounding allows. Attention must give rows the same bits
/// with fewer of them.
std::string try_towers(CudaContext& context, const TowerOps& ops, DType dtype, int32_t head_dim);

/// Sampling. Tokens must be those of reference_sample(), and log-probabilities theirs within 1e-4,
/// the same bits launched and from a graph.
std::string try_sampling(CudaContext& context, TrialOp<SampleArgs> op);

}  // namespace headrace::cuda
