#pragma once

// Speculator: guesses of the tokens to come, for the model to confirm several at once.

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

/// What guessing keeps of one request.
struct Speculation {
  std::optional<PromptLookup> lookup;  ///< none: a drafter guesses, by
  std::vector<int32_t> tokens;         ///< all that are known, of which a draft model has
  int32_t read = 0;                    ///< read that many
  int32_t num_prompt_tokens = 0;
  UnreadRows unread;  ///< of an MTP block
  bool keeps_rows =
      false;              ///< rows of the step under way are for the block (StepBatch::all_hidden)
  bool is_blind = false;  ///< it has too much to read: the block guesses nothing
  GuessLuck luck;
  /// Guesses of the tokens behind the last known one.
  std::vector<int32_t> drafts;
};

/// Guesses as many tokens of each request as GuessRule says. Whatever it does, outputs are the
/// same. The loop thread owns it.
class Speculator {
 public:
  /// Known tokens of a request that a drafter reads as a part of guessing. More of them are paid
  /// for from the rule's budget.
  static constexpr int32_t kFreeRead = 16;
  static constexpr int32_t kMostFailures = 3;

  /// REQUIRES: valid options with a method. `draft` is null unless that is "draft_model", and `mtp`
  /// unless it is "mtp".
  Speculator(const SpeculativeOptions& options, const StepCosts& costs,
             std::unique_ptr<DraftModel> draft = nullptr,
             std::unique_ptr<MtpDrafter> mtp = nullptr);

  /// By the loop thread, before the first step.
  void enter_thread() {
    if (drafter_ != nullptr) drafter_->enter_thread();
  }

  std::unique_ptr<Speculation> start(std::span<const int32_t> prompt) const;

  /// A step has been computed: see GuessRule.
  void note_step(int32_t rows, int32_t decodes) { rule_.note_step(rows, decodes); }
  /// A request of that step: `computed` of its guesses were in it, of which `confirmed` were
  /// right.
  void note_result(Speculation& request, int32_t computed, int32_t confirmed);
  /// Its output has grown.
  static void append(Speculation& request, std::span<const int32_t> tokens);
  /// How many guesses it may have in the next step; those that cost nothing are made.
  int32_t propose(Speculation& request) const;

  /// A request of a step that is about to be computed.
  struct Planned {
    const PlannedSeq* seq;
    Speculation* request;
    const SamplerState* sampler;
  };
  /// Makes the guesses that the plan has room for, and drops others. A drafter that fails costs the
  /// step its guesses and nothing else; after kMostFailures in a row it isn't asked any more.
  /// Returns why it failed, or "".
  std::string fill(std::span<const Planned> planned);

  /// A request of a step that has been computed.
  struct Computed {
    Speculation* request;
    const SeqSlice* rows;
    std::span<const int32_t> new_tokens;  ///< behind those that were known
  };
  /// For an MTP block: it may read the step's rows of requests that keep rows, those whose next
  /// tokens are known. Before anything else uses the model. Likewise returns why it failed.
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
  Drafter* const drafter_;  ///< whichever there is
  std::vector<Drafter::Request> draft_requests_;
  std::vector<MtpDrafter::Computed> computed_;
  std::vector<std::vector<int32_t>> next_tokens_;  ///< of each of them
  int32_t failures_ = 0;                           ///< of the drafter, in a row
  GuessRule rule_;
};

}  // namespace headrace::internal
