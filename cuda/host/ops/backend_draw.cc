// Draws of the common kind, no lists and nothing to report but the id, as a part of the step: a
// record has their kernels too, which read what differs from step to step from the step's inputs
// and leave ids in page-locked memory. Nothing else is queued for them.

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "cuda/host/cuda_backend.h"
#include "cuda/host/ops/sample_args.h"

namespace headrace::cuda {

namespace {

bool is_plain(const SampleRow& row) {
  return row.num_logprobs < 0 && row.forced_token < 0 && row.allowed == nullptr &&
         row.bias.empty() && row.masked.empty() && row.banned.empty() && row.seen.empty();
}

}  // namespace

// What a step leaves that nobody has asked for, the GPU may still write: later steps' results come
// behind that.
void CudaBackend::queue_draws() {
  if (step_draw_) spare_draws_.push_back(std::move(*step_draw_));
  step_draw_.reset();
  const std::span<const SampleRow> rows = step_.batch.draws;
  HEADRACE_CHECK(rows.empty() || rows.size() == step_.batch.logit_rows.size(), rows.size());
  if (rows.empty() || !step_.recorded || !std::ranges::all_of(rows, is_plain)) return;
  step_.ends_with_draws = rank_ == nullptr ? runs_ahead() : rank_->first_runs_ahead();
  if (!step_.ends_with_draws) return;
  std::vector<SampleRowArgs> args(rows.size());
  std::ranges::transform(rows, args.begin(), sample_args_without_lists);
  step_.spreads = std::ranges::any_of(args, needs_total);
  const bool has_logits = rank_ == nullptr || rank_->rank() == 0;
  if (!has_logits) return;
  for (size_t i = 0; i < rows.size(); ++i) {
    HEADRACE_CHECK(std::cmp_equal(args[i].logits_row, i), args[i].logits_row, " is not ", i);
  }
  args.resize(static_cast<size_t>(step_.rows), {.logits_row = -1});
  Draw draw = spare_draw(rows.size() * sizeof(SampleRowResult));
  draw.rows = rows.size();
  draw.most_logprobs = 0;
  SampleRowResult* const results[] = {reinterpret_cast<SampleRowResult*>(draw.output.data())};
  step_draw_ = std::move(draw);
  step_.draws = arena_.put<SampleRowArgs>(args);
  step_.drawn = arena_.put<SampleRowResult*>(results);
}

void CudaBackend::draw(TensorView logits, int32_t vocab_size) {
  if (step_.draws == nullptr) return;
  HEADRACE_CHECK(logits.rows() == step_.rows && logits.dtype == DType::kF32, logits.rows());
  void* const workspace =
      grow(sample_workspace_, sample_workspace_bytes(logits.rows(), vocab_size));
  graphs_.note("draw", logits, vocab_size, step_.draws, step_.drawn, workspace, drawn_.data,
               step_.spreads);
  launch(cuda::sample, {.logits = static_cast<float*>(logits.data),
                        .stride = logits.row_stride,
                        .vocab_size = vocab_size,
                        .rows = step_.draws,
                        .num_rows = logits.rows(),
                        .spreads = step_.spreads,
                        .workspace = workspace,
                        .results_at = step_.drawn,
                        .drawn = static_cast<int32_t*>(drawn_.data)});
}

void CudaBackend::begin_drawn(std::span<const SampleRow> rows) {
  HEADRACE_CHECK(
      num_drawn_ == 0 && rows.data() == step_.batch.draws.data() && rows.size() == step_draw_->rows,
      "other draws than the step's: ", rows.size());
  draws_.push_back(std::move(*step_draw_));
  step_draw_.reset();
  num_drawn_ = rows.size();
  try {
    draws_.back().done.record(context_.stream());
  } catch (...) {
    spare_draws_.push_back(std::move(draws_.back()));
    draws_.pop_back();
    throw;
  }
}

}  // namespace headrace::cuda
