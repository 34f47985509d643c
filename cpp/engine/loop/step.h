#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "engine/adapters/lora_table.h"
#include "engine/guess/speculator.h"
#include "engine/masks/guide.h"
#include "engine/masks/mask_workers.h"
#include "engine/media/request_media.h"
#include "engine/request/booking.h"
#include "engine/request/pooler.h"
#include "engine/request/request_state.h"
#include "engine/runner/step_runner.h"
#include "sample/sampler_state.h"
#include "sched/scheduler.h"

namespace headrace::internal {

/// A request in the scheduler.
struct LiveRequest {
  std::shared_ptr<RequestState> state;
  Booking booking;
  LoraLease lora;
  std::shared_ptr<const LoraAdapter> adapter;  ///< lora's, on this replica's devices; or null
  std::unique_ptr<SamplerState> sampler;
  std::shared_ptr<Guide> guide;              ///< null: no constraint
  std::unique_ptr<Speculation> speculation;  ///< null: nothing is guessed
  std::unique_ptr<Pooler> pooler;            ///< null: it generates
  std::unique_ptr<RequestMedia> media;       ///< null: text alone
  bool wants_logprobs = false;
  int32_t ahead_from = kNeverAhead;  ///< SeqSpec's
  bool not_finite = false;  ///< a row of its logits was not (SampleResult::finite), or a pooled one
  /// The prompt, while its log-probabilities are being read; else empty.
  std::vector<int32_t> scored_prompt;
  int32_t num_scored = 0;  ///< positions whose rows have been in a step for that
  std::vector<PositionLogprobs> prompt_logprobs;  ///< of positions 1, 2, ... as far as read
};

/// What a step has done for a sequence that samples.
struct SampledSeq {
  LiveRequest* live = nullptr;
  static constexpr size_t kNone = static_cast<size_t>(-1);

  size_t first_target = 0;      ///< the last known token's row; its guesses' rows follow
  size_t next_target = 0;       ///< the next row that is drawn from, or kNone
  int32_t num_drafts = 0;       ///< guesses that were computed
  int32_t count = 0;            ///< tokens drawn: one, and one for each guess that was right
  bool is_unguided = false;     ///< its guide had no token for it: what was drawn is not to be used
  bool guide_is_ahead = false;  ///< its guide knows the last token
  bool not_finite = false;      ///< likewise: SampleResult::finite of its first row
  bool is_postponed = false;    ///< likewise: its mask is late
};

/// One step: a plan turned into a batch and sampling rows, and what came of it. Its buffers are
/// reused from step to step.
class Step {
 public:
  /// Rows whose token is `first_vision_token` or above are vision (StepBatch::modalities); 0: all
  /// are text.
  Step(int32_t max_rows, int32_t max_seqs, int32_t first_vision_token);

  /// `live[i]` belongs to plan.seqs[i]. Plan and live stay unchanged until the results are read.
  /// Speculation::drafts, no more than the plan has room for, are computed behind a decode.
  /// `before`: sampled() of the step that PlannedSeq::drawn_by counts in.
  void build(const StepPlan& plan, std::span<LiveRequest* const> live, const Scheduler& scheduler,
             std::span<const SampledSeq> before = {});
  /// Computes and samples, reading logits in as many calls as their number needs. The row behind a
  /// guess is drawn from only if the guess is what was drawn before it; then the sampler and the
  /// guide have taken it. Waits for masks that are not there when they are needed. Appends to
  /// LiveRequest::prompt_logprobs, and adds to LiveRequest::pooler. `masks` may be null if no
  /// request has a guide.
  void run(StepRunner& runner, MaskWorkers* masks);

  /// run() in parts, for a step whose rows all plan ahead: begin() calls the ops, and finish()
  /// waits for what was drawn. The plan is not read behind begin().
  bool can_begin() const noexcept { return plans_ahead_; }
  void begin(StepRunner& runner);
  bool begun() const noexcept { return begun_; }
  /// How a row is drawn from may depend on all tokens before it (penalties, guides). Then begin()
  /// has left the draws to begin_draws(), which comes behind the commit of the step before, and
  /// before the ops of the next one. Waits for masks.
  bool draws_are_due() const noexcept { return draws_are_due_; }
  void begin_draws(StepRunner& runner, MaskWorkers* masks);
  /// Before begin_draws(): what is drawn for a sequence is not to be used, and not waited for.
  void postpone(size_t sampled) noexcept { sampled_[sampled].is_postponed = true; }
  /// A request that has ended between begin() and finish(): what is drawn for it is nobody's.
  void forget(const LiveRequest& live) noexcept;
  void finish(StepRunner& runner);
  /// Instead of finish(): waits for the step, if it has begun, whatever becomes of it.
  void drop(StepRunner& runner) noexcept;
  /// Where nothing is waited for any more.
  void let_go_of_adapters() noexcept { held_adapters_.clear(); }

  /// The planned sequences' rows, guesses included.
  std::span<const SeqSlice> slices() const noexcept { return slices_; }
  /// The planned sequences that sample, in their order.
  std::span<const SampledSeq> sampled() const noexcept { return sampled_; }
  /// Their tokens, one sequence after the other, and how many each has.
  std::span<const int32_t> tokens() const noexcept { return tokens_; }
  std::span<const int32_t> counts() const noexcept { return counts_; }
  /// Rows of the step, guesses included.
  int32_t num_rows() const noexcept { return static_cast<int32_t>(token_ids_.size()); }
  /// Seconds that run() has waited for masks.
  double mask_wait_seconds() const noexcept { return mask_wait_seconds_; }
  /// The `nth` token of a sequence, and what was asked for about it.
  int32_t token(const SampledSeq& seq, int32_t nth) const;
  PositionLogprobs take_logprobs(const SampledSeq& seq, int32_t nth);

 private:
  /// A row of logits that is read.
  struct Target {
    LiveRequest* live;     ///< null: it has ended
    int32_t prompt_token;  ///< whose log-probability is read; < 0: a token is drawn
    size_t sampled;        ///< place in sampled_ if one is drawn
    int32_t ahead = 0;     ///< tokens drawn that the sampler has not been given
    int32_t pooled = -1;   ///< >= 0: nothing is drawn; the prompt's position whose row is pooled
  };
  /// A row that is pooled as it is before the head.
  struct PooledRow {
    LiveRequest* live;
    int32_t position;
  };
  /// The rows of logits that are there: [first, end) of targets_.
  struct Chunk {
    size_t first, end;
    TensorView logits;
  };

  void add_rows(const PlannedSeq& seq, LiveRequest& live, const Scheduler& scheduler,
                std::span<const SampledSeq> before);
  int32_t number_of(const std::shared_ptr<const LoraAdapter>& adapter);
  static void put_states(const PlannedSeq& seq, SeqSlice& slice);
  void add_row(int32_t token, int32_t position, int32_t rope_len, const RequestMedia* media);
  void add_given(const PlannedSeq& seq, const RequestMedia& media, int32_t first_row);
  void put_sight(const RequestMedia& media, SeqSlice& slice);
  TensorView compute(StepRunner& runner, size_t first, std::span<const int32_t> wanted,
                     std::span<const SampleRow> draws = {});
  size_t num_wanted(const StepRunner& runner, size_t first) const;
  void begin_chunk(StepRunner& runner, const TensorView& logits);
  void list_draws(size_t first, size_t count, MaskWorkers* masks);
  void collect(StepRunner& runner);
  void pool_row(LiveRequest& live, int32_t position);
  void pool_logits(StepRunner& runner, const Chunk& chunk);
  void pool_hidden(StepRunner& runner);
  void run_pool_head(StepRunner& runner);
  void add_target(const Target& target);
  void first_draws(const Chunk& chunk);
  void draw(StepRunner& runner, const Chunk& chunk, MaskWorkers* masks);
  bool prepare(const Target& target, SampleRow& row, int32_t ahead, MaskWorkers* masks);
  void note_prompt(size_t index);
  bool wait_for_mask(Guide& guide, MaskWorkers& masks);
  void next_draws(const Chunk& chunk, MaskWorkers* masks);
  void refuse(SampledSeq& seq);
  bool confirm(SampledSeq& seq, int32_t token, MaskWorkers* masks);
  void list_tokens();

  std::vector<int32_t> token_ids_, positions_, rope_lens_;  // [T]
  std::vector<int32_t> sources_;                            // [T]: StepBatch::drawn
  std::array<std::vector<int32_t>, 3> rope_axes_;           // [T] each
  std::vector<int32_t> rope_positions_;                     // [3][T], or empty: StepBatch's
  std::vector<Modality> modalities_;                        // [T], or empty: one group of experts
  std::vector<int32_t> token_types_;                        // [T]
  std::vector<GivenRows> given_;
  std::deque<std::vector<TensorView>> added_;         // that given_ points to
  std::deque<std::vector<PositionRange>> both_ways_;  // that slices_ point to
  const int32_t first_vision_token_;
  bool has_axes_ = false, has_vision_ = false, has_types_ = false;
  std::vector<SeqSlice> slices_;
  std::vector<const LoraAdapter*> adapters_;  ///< that SeqSlice::adapter counts
  /// The same, for as long as the device may use them: requests may end meanwhile.
  std::vector<std::shared_ptr<const LoraAdapter>> held_adapters_;
  // [S] in row order:
  std::vector<int32_t> logit_rows_;
  std::vector<Target> targets_;
  std::vector<SampleResult> results_;
  // [P] in row order:
  std::vector<int32_t> hidden_rows_;
  std::vector<PooledRow> pooled_;
  std::vector<LiveRequest*> headed_;  ///< whose last prompt row this is, and Pooler::wants_head
  std::vector<float> floats_;         // read of them
  // Of the draws of one call:
  std::vector<size_t> drawn_;  // targets
  std::vector<SampleRow> draw_rows_;
  std::vector<SampleResult> draw_results_;

  std::vector<SampledSeq> sampled_;
  std::vector<int32_t> tokens_, counts_;
  bool plans_ahead_ = false;
  bool has_sources_ = false;
  bool keeps_rows_ = false;
  bool draws_late_ = false;  // they need all tokens before them
  bool begun_ = false, draws_are_due_ = false;
  TensorView logits_;     // while draws are due
  size_t under_way_ = 0;  // draws that have begun and not been collected
  size_t collected_ = 0;  // of results_
  double mask_wait_seconds_ = 0;
};

}  // namespace headrace::internal
