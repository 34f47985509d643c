#pragma once

// Exchanges between the GPUs of a model, tried by all of its ranks at once.

#include <chrono>
#include <functional>
#include <string>

#include "cuda/host/ranks/device_rank.h"
#include "cuda/host/runtime/context.h"
#include "cuda/host/trials/kernel_trials.h"
#include "cuda/kernels/ranks/all_reduce.h"
#include "cuda/kernels/ranks/gather_columns.h"
#include "cuda/kernels/ranks/reduce_add_norm.h"
#include "cuda/kernels/ranks/send_words.h"

namespace headrace::cuda {

struct ExchangeOps {
  TrialOp<AllReduceArgs> all_reduce = cuda::all_reduce;
  TrialOp<GatherColumnsArgs> gather_columns = cuda::gather_columns;
  TrialOp<SendArgs> send_words = cuda::send_words;
  TrialOp<ReduceAddNormArgs> reduce_add_norm = cuda::reduce_add_norm;
};

/// Longer than this a GPU waits for no other in a trial.
inline constexpr std::chrono::milliseconds kExchangePatience{10'000};

/// Sums of few and of many bytes, columns, words and sums with norms must be what the host makes of
/// all ranks' numbers in the order of the ranks, bit for bit (norms: within what rounding allows),
/// launched and from a graph. Returns why they can't be trusted, the same on every rank; "": they
/// can. Throws OtherRankFailed, and what launches throw: then the other ranks must be told
/// (RankGroup::fail).
std::string try_exchanges(CudaContext& context, DeviceRank& rank, const ExchangeOps& ops,
                          DType dtype, std::chrono::milliseconds patience = kExchangePatience);

/// What became of the ways in which ranks may meet.
struct ExchangeVerdict {
  std::string replaced;  ///< why NCCL brings the parts now; empty: nothing was replaced
  std::string refused;   ///< why nothing can be trusted
};

/// Tries the ranks' exchanges. If those through each other's memory fail, NCCL takes their place
/// and is tried. Throws likewise.
ExchangeVerdict prove_exchanges(CudaContext& context, DeviceRank& rank, const ExchangeOps& ops,
                                DType dtype,
                                std::chrono::milliseconds patience = kExchangePatience);

}  // namespace headrace::cuda
