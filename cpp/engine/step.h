#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/guide.h"
#include "engine/lora_table.h"
#include "engine/mask_workers.h"
#include "engine/request_state.h"
#include "engine/step_runner.h"
#include "sample/sampler_state.h"
#include "sched/scheduler.h"

namespace headrace::internal {

/// A request in the scheduler.
struct LiveRequest {
  std::shared_ptr<RequestState> state;
  LoraLease lora;
  std::unique_ptr<SamplerState> sampler;
  std::shared_ptr<Guide> guide;  ///< null: no constraint
  bool wants_logprobs = false;
  /// The prompt, while its log-probabilities are being read; else empty.
  std::vector<int32_t> scored_prompt;
  std::vector<PositionLogprobs> prompt_logprobs;  ///< of positions 1, 2, ... as far as read
};

/// One step: a plan turned into a batch and sampling rows, and what came of it. Its buffers are
/// reused from step to step.
class Step {
 public:
  Step(int32_t max_rows, int32_t max_seqs);

  /// `live[i]` belongs to plan.seqs[i]. Plan and live stay unchanged until the results are read.
  void build(const StepPlan& plan, std::span<LiveRequest* const> live, const Scheduler& scheduler);
  /// Computes and samples, reading logits in as many calls as their number needs. Waits for masks
  /// that are not there when the logits are. A request whose guide has no token for it gets some
  /// token, not to be used. Appends to LiveRequest::prompt_logprobs. `masks`: where the guides are;
  /// null if there are none.
  void run(StepRunner& runner, MaskWorkers* masks);

  /// Tokens of the planned sequences that sample, in their order.
  std::span<const int32_t> sampled() const noexcept { return sampled_; }
  /// Seconds that run() has waited for masks.
  double mask_wait_seconds() const noexcept { return mask_wait_seconds_; }
  /// Of the i-th of them.
  PositionLogprobs take_logprobs(size_t i);

 private:
  struct Target {
    LiveRequest* live;
    bool is_prompt;
  };

  void add_rows(const PlannedSeq& seq, LiveRequest& live, const Scheduler& scheduler);
  void add_target(int32_t row, const SampleRow& how, LiveRequest& live, bool is_prompt);
  void apply_masks(size_t first, size_t count, MaskWorkers* masks);
  void read_results(size_t first, size_t count);

  std::vector<int32_t> token_ids_, positions_, rope_lens_;  // [T]
  std::vector<SeqSlice> slices_;
  // [S] in row order:
  std::vector<int32_t> logit_rows_;
  std::vector<SampleRow> sample_rows_;
  std::vector<Target> targets_;
  std::vector<SampleResult> results_;

  std::vector<int32_t> sampled_;
  std::vector<size_t> sampled_result_;  // its place in results_
  double mask_wait_seconds_ = 0;
};

}  // namespace headrace::internal
