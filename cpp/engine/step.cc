#include "engine/step.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace headrace::internal {

namespace {

PositionLogprobs to_logprobs(SampleResult& result) {
  PositionLogprobs out{result.token, result.logprob, result.rank, {}};
  out.top.reserve(result.top.size());
  for (const TokenLogprob& best : result.top) out.top.emplace_back(best.token, best.logprob);
  return out;
}

}  // namespace

Step::Step(int32_t max_rows, int32_t max_seqs) {
  const auto rows = static_cast<size_t>(max_rows);
  const auto seqs = static_cast<size_t>(max_seqs);
  for (auto* buffer : {&token_ids_, &positions_, &rope_lens_}) buffer->reserve(rows);
  slices_.reserve(seqs);
  logit_rows_.reserve(seqs);
  sample_rows_.reserve(seqs);
  targets_.reserve(seqs);
  results_.reserve(seqs);
  sampled_.reserve(seqs);
  sampled_result_.reserve(seqs);
}

void Step::build(const StepPlan& plan, std::span<LiveRequest* const> live,
                 const Scheduler& scheduler) {
  for (auto* buffer : {&token_ids_, &positions_, &rope_lens_, &logit_rows_, &sampled_}) {
    buffer->clear();
  }
  slices_.clear();
  sample_rows_.clear();
  targets_.clear();
  mask_wait_seconds_ = 0;
  sampled_result_.clear();
  for (size_t i = 0; i < plan.seqs.size(); ++i) add_rows(plan.seqs[i], *live[i], scheduler);
}

void Step::add_rows(const PlannedSeq& seq, LiveRequest& live, const Scheduler& scheduler) {
  const auto first_row = static_cast<int32_t>(token_ids_.size());
  slices_.push_back({first_row, seq.num_tokens, seq.start_pos, seq.blocks,
                     live.lora == nullptr ? nullptr : live.lora->adapter.get()});
  const auto prompt_len = static_cast<int32_t>(live.scored_prompt.size());
  auto scored = static_cast<int32_t>(live.prompt_logprobs.size());
  for (int32_t i = 0; i < seq.num_tokens; ++i) {
    const int32_t position = seq.start_pos + i;
    token_ids_.push_back(seq.tokens[static_cast<size_t>(i)]);
    positions_.push_back(position);
    rope_lens_.push_back(scheduler.rope_len(seq.id, position));
    if (position == scored && position + 1 < prompt_len) {
      const int32_t next = live.scored_prompt[static_cast<size_t>(position) + 1];
      add_target(first_row + i, live.sampler->prompt_row(0, next), live, true);
      ++scored;
    }
  }
  if (seq.samples) {
    add_target(first_row + seq.num_tokens - 1, live.sampler->next_row(0), live, false);
  }
}

void Step::add_target(int32_t row, const SampleRow& how, LiveRequest& live, bool is_prompt) {
  logit_rows_.push_back(row);
  sample_rows_.push_back(how);
  targets_.push_back({&live, is_prompt});
}

void Step::run(StepRunner& runner, MaskWorkers* masks) {
  const auto chunk = static_cast<size_t>(runner.max_logit_rows());
  const size_t total = logit_rows_.size();
  if (results_.size() < total) results_.resize(total);
  const std::span<const int32_t> rows = logit_rows_;
  for (size_t first = 0; first == 0 || first < total; first += chunk) {
    const size_t count = std::min(chunk, total - first);
    const auto wanted = rows.subspan(first, count);
    const TensorView logits =
        first == 0 ? runner.forward({token_ids_, positions_, rope_lens_, slices_, wanted})
                   : runner.logits(wanted);
    if (count == 0) return;
    for (size_t i = 0; i < count; ++i) sample_rows_[first + i].logits_row = static_cast<int32_t>(i);
    apply_masks(first, count, masks);
    runner.sample(logits, std::span(sample_rows_).subspan(first, count),
                  std::span(results_).subspan(first, count));
    read_results(first, count);
  }
}

void Step::apply_masks(size_t first, size_t count, MaskWorkers* masks) {
  using Clock = std::chrono::steady_clock;
  for (size_t i = first; i < first + count; ++i) {
    Guide* const guide = targets_[i].is_prompt ? nullptr : targets_[i].live->guide.get();
    if (guide == nullptr) continue;
    if (!guide->ready()) {
      const auto start = Clock::now();
      masks->wait(*guide);
      mask_wait_seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
    }
    if (guide->next() == Guide::Next::kTokens) sample_rows_[i].allowed = guide->allowed();
  }
}

void Step::read_results(size_t first, size_t count) {
  for (size_t i = first; i < first + count; ++i) {
    if (targets_[i].is_prompt) {
      targets_[i].live->prompt_logprobs.push_back(to_logprobs(results_[i]));
    } else {
      sampled_.push_back(results_[i].token);
      sampled_result_.push_back(i);
    }
  }
}

PositionLogprobs Step::take_logprobs(size_t i) { return to_logprobs(results_[sampled_result_[i]]); }

}  // namespace headrace::internal
