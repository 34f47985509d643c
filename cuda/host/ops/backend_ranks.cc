// What a GPU does with the others that compute the model.

#include <algorithm>
#include <iterator>
#include <utility>

#include "backend/checks/op_checks.h"
#include "base/check.h"
#include "cuda/host/cuda_backend.h"
#include "cuda/host/ops/op_views.h"
#include "cuda/kernels/ranks/all_reduce.h"
#include "cuda/kernels/ranks/gather_columns.h"
#include "cuda/kernels/ranks/reduce_add_norm.h"
#include "cuda/kernels/ranks/send_words.h"

namespace headrace::cuda {

void CudaBackend::join(std::shared_ptr<RankGroup> group, int32_t rank) {
  HEADRACE_CHECK(rank_ == nullptr);
  rank_ = std::make_unique<DeviceRank>(
      context_, memory_, std::move(group), rank,
      RankWays{use_peers_, nccl_, runs_ahead(), [this] { graphs_.drop_all(); }});
}

void CudaBackend::link_ranks() {
  HEADRACE_CHECK(rank_ != nullptr);
  context_.enter();
  rank_->links();
  if (tries_kernels_) try_exchanges();
}

// Rank 0 alone draws: the others get what it has drawn from it.
void CudaBackend::embed_part(const PackedWeight& table, int32_t first, TensorView out) {
  HEADRACE_CHECK(rank_ != nullptr && first >= 0, first);
  for (const int32_t id : step_.batch.token_ids) HEADRACE_CHECK(id >= 0, "token ", id);
  if (!reserving_ && rank_->first_runs_ahead()) {
    graphs_.note("send_words", drawn_.data);
    launch(cuda::send_words, {.links = rank_->links(),
                              .words = static_cast<uint32_t*>(drawn_.data),
                              .count = kMostDrawn});
  }
  run_embed(table, first, static_cast<int32_t>(table.n()), out);
}

void CudaBackend::all_reduce(TensorView x) {
  HEADRACE_CHECK(rank_ != nullptr && x.dtype == storage_, dtype_name(x.dtype));
  graphs_.note("all_reduce", x);
  if (reserving_) return;
  launch(cuda::all_reduce, {.links = rank_->links(), .dtype = x.dtype, .x = matrix(x)});
}

void CudaBackend::all_reduce_add_rms_norm(const ReduceAddNorm& args) {
  HEADRACE_CHECK(rank_ != nullptr);
  check_same(args.residual, args.delta);
  check_same(args.residual, args.out);
  check_norm_weight(args.norm, args.residual.cols(), args.residual.dtype);
  ReduceAddNormArgs fused{.norm = {.dtype = args.residual.dtype,
                                   .x = matrix(args.residual),
                                   .delta = matrix(args.delta),
                                   .weight = args.norm.data,
                                   .eps = args.eps,
                                   .out = matrix(args.out),
                                   .float_weight = args.norm.dtype == DType::kF32}};
  if (!reserving_) fused.links = rank_->links();
  if (!reserving_ && !takes_reduce_add_norm(fused)) {
    return Backend::all_reduce_add_rms_norm(args);
  }
  graphs_.note("reduce_add_norm", args.delta, args.residual, args.norm, args.eps, args.out);
  round_ahead(fused.norm);
  launch(cuda::reduce_add_norm, fused);
  note_rounded(fused.norm);
}

void CudaBackend::gather_columns(TensorView x, TensorView out) {
  HEADRACE_CHECK(rank_ != nullptr && (x.dtype == DType::kF32 || x.dtype == storage_),
                 dtype_name(x.dtype));
  HEADRACE_CHECK(out.dtype == x.dtype && out.rows() == x.rows(), out.rows(), " rows, not ",
                 x.rows());
  graphs_.note("gather_columns", x, out);
  if (reserving_) return;
  const std::vector<int64_t>& begins = rank_->columns(x.cols(), out.cols());
  GatherColumnsArgs args{.links = rank_->links(), .dtype = x.dtype, .part = matrix(x)};
  std::ranges::copy(begins, args.begins);
  std::fill(args.begins + begins.size(), std::end(args.begins), begins.back());
  if (out.data != nullptr) args.out = matrix(out);
  launch(cuda::gather_columns, args);
}

}  // namespace headrace::cuda
