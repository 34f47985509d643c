#pragma once

// Speculator: guesses the next tokens, so that the model confirms several tokens in one step.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/guess/draft_model.h"
#include "engine/guess/mtp_drafter.h"
#include "headrace/options.h"
#include "sched/scheduler.h"
#include "spec/guess_rule.h"
#include "spec/prompt_lookup.h"

namespace headrace::internal {

/// The state of guessing for one request.
struct Speculation {
  std::optional<PromptLookup> lookup;  ///< none: a drafter guesses, by
  std::vector<int32_t> tokens;         ///< all that are known, of which a draft model has
  int32_t read = 0;                    ///< read that many
  int32_t num_prompt_tokens = 0;
  const RopeLayout* rope = nullptr;  ///< for an MTP block: GuessText::rope
  UnreadRows unread;                 ///< for an MTP block
  bool keeps_rows = false;  ///< the block needs rows of the current step (StepBatch::all_hidden)
  bool is_blind = false;    ///< its text is too long to read: the block guesses nothing
  GuessLuck luck;
  /// Guesses of the tokens after the last known one.
  std::vector<int32_t> drafts;
};

/// Guesses as many tokens of each request as GuessRule allows. It never changes outputs. The loop
/// thread owns it.
class Speculator {
 public:
  /// Known tokens of a request that a drafter reads for free. The rule's budget pays for more.
  static constexpr int32_t kFreeRead = 16;
  static constexpr int32_t kMostFailures = 3;

  /// REQUIRES: valid options with a method. `draft` is null unless the method is "draft_model", and
  /// `mtp` is null unless it is "mtp".
  Speculator(const SpeculativeOptions& options, const StepCosts& costs,
             std::unique_ptr<DraftModel> draft = nullptr,
             std::unique_ptr<MtpDrafter> mtp = nullptr);

  /// The loop thread calls it before the first step.
  void enter_thread() {
    if (drafter_ != nullptr) drafter_->enter_thread();
  }

  /// `rope`: where the prompt has media with positions of their own, else null. It lives as long as
  /// the request.
  std::unique_ptr<Speculation> start(std::span<const int32_t> prompt, const RopeLayout* rope) const;

  /// Notes a computed step: see GuessRule.
  void note_step(int32_t rows, int32_t decodes) { rule_.note_step(rows, decodes); }
  /// Notes a request of that step: the step computed `computed` of its guesses, and `confirmed` of
  /// them were right.
  void note_result(Speculation& request, int32_t computed, int32_t confirmed);
  /// Appends new tokens of the request's output.
  static void append(Speculation& request, std::span<const int32_t> tokens);
  /// How many guesses the request may have in the next step. Guesses that cost nothing are made
  /// here.
  int32_t propose(Speculation& request) const;

  /// A request of the step that comes next.
  struct Planned {
    const PlannedSeq* seq;
    Speculation* request;
    const SamplerState* sampler;
  };
  /// Makes the guesses for which the plan has room, and drops other guesses. A drafter that fails
  /// costs the step only its guesses; after kMostFailures in a row it is no longer asked. Returns
  /// why it failed, or "".
  std::string fill(std::span<const Planned> planned);

  /// A request of the step that was computed.
  struct Computed {
    Speculation* request;
    const SeqSlice* rows;
    std::span<const int32_t> new_tokens;  ///< after the known tokens
  };
  /// Gives an MTP block the step's rows of requests that keep rows, if the rows' next tokens are
  /// known. Call it before anything else uses the model. Returns why it failed, or "".
  std::string take_rows(std::span<const Computed> computed);

 private:
  bool may_guess(const Speculation& request) const;
  bool can_read(int32_t rows) const { return rows <= kFreeRead || rule_.can_read(rows); }
  void choose_keepers(std::span<const Planned> planned);
  std::string ask_drafter();
  void list_rows(std::span<const Computed> computed);

  const SpeculativeOptions options_;
  const std::unique_ptr<DraftModel> draft_;
  const std::unique_ptr<MtpDrafter> mtp_;
  Drafter* const drafter_;  ///< draft_ or mtp_, if there is one
  std::vector<Drafter::Request> draft_requests_;
  std::vector<MtpDrafter::Computed> computed_;
  std::vector<std::vector<int32_t>> next_tokens_;  ///< for each of computed_
  int32_t failures_ = 0;                           ///< failures of the drafter in a row
  GuessRule rule_;
};

}  // namespace headrace::internal
