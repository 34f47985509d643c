// Steps whose results are waited for only when the next one has begun.

#include <algorithm>

#include "base/check.h"
#include "engine/loop/step.h"

namespace headrace::internal {

void Step::begin(StepRunner& runner) {
  HEADRACE_CHECK(plans_ahead_ && !begun_ && targets_.size() <= kMostDrawn, targets_.size());
  const size_t total = logit_rows_.size();
  if (results_.size() < total) results_.resize(total);
  collected_ = 0;
  const std::span<const int32_t> rows = logit_rows_;
  size_t first = 0;
  do {  // even without any: the step is to be waited for
    const auto wanted = rows.subspan(first, num_wanted(runner, first));
    draw_rows_.clear();
    if (!draws_late_) list_draws(first, wanted.size(), nullptr);
    const TensorView logits = compute(runner, first, wanted, draw_rows_);
    begun_ = true;
    if (draws_late_) {
      logits_ = logits;
      draws_are_due_ = true;
      return;
    }
    begin_chunk(runner, logits);
    first += wanted.size();
  } while (first < total);
}

void Step::begin_draws(StepRunner& runner, MaskWorkers* masks) {
  HEADRACE_CHECK(draws_are_due_);
  const std::span<const int32_t> rows = logit_rows_;
  for (size_t first = 0; first < rows.size(); first += num_wanted(runner, first)) {
    const auto wanted = rows.subspan(first, num_wanted(runner, first));
    list_draws(first, wanted.size(), masks);
    begin_chunk(runner, first == 0 ? logits_ : runner.logits(wanted));
  }
  draws_are_due_ = false;
}

/// Rows of logits from targets_[first] on that one call gives.
size_t Step::num_wanted(const StepRunner& runner, size_t first) const {
  return std::min(static_cast<size_t>(runner.max_logit_rows()), logit_rows_.size() - first);
}

/// How they are drawn from, in their order. Late draws know all tokens before them.
void Step::list_draws(size_t first, size_t count, MaskWorkers* masks) {
  draw_rows_.clear();
  for (size_t i = 0; i < count; ++i) {
    const Target& target = targets_[first + i];
    SampleRow& row = draw_rows_.emplace_back();
    row.greedy = true;
    const bool is_read = target.prompt_token >= 0 || !sampled_[target.sampled].is_postponed;
    if (target.live != nullptr && is_read) {
      prepare(target, row, draws_late_ ? 0 : target.ahead, masks);
    }
    row.logits_row = static_cast<int32_t>(i);
  }
}

void Step::begin_chunk(StepRunner& runner, const TensorView& logits) {
  runner.begin_sample(logits, draw_rows_);
  ++under_way_;
}

void Step::forget(const LiveRequest& live) noexcept {
  if (!begun_) return;
  for (Target& target : targets_) {
    if (target.live == &live) target.live = nullptr;
  }
}

void Step::finish(StepRunner& runner) {
  HEADRACE_CHECK(!draws_are_due_);
  while (under_way_ > 0) collect(runner);
  begun_ = false;
  held_adapters_.clear();
  for (size_t i = 0; i < targets_.size(); ++i) {
    if (targets_[i].prompt_token >= 0 && targets_[i].live != nullptr) note_prompt(i);
  }
  for (SampledSeq& seq : sampled_) {
    seq.count = 1;
    seq.not_finite = !seq.is_unguided && !seq.is_postponed && !results_[seq.first_target].finite;
  }
  list_tokens();
}

void Step::drop(StepRunner& runner) noexcept {
  const auto attempt = [](const auto& call) {
    try {
      call();
    } catch (...) {  // nobody needs it, nor what is wrong with it
    }
  };
  if (draws_are_due_ && under_way_ == 0) {
    attempt([&] {
      runner.begin_sample(logits_, {});
      runner.end_sample({});
    });
  }
  while (under_way_ > 0) attempt([&] { collect(runner); });
  begun_ = draws_are_due_ = false;
  held_adapters_.clear();
}

/// Waits for the oldest draw.
void Step::collect(StepRunner& runner) {
  const auto results = std::span(results_).subspan(collected_, num_wanted(runner, collected_));
  --under_way_;
  collected_ += results.size();
  runner.end_sample(results);
}

}  // namespace headrace::internal
