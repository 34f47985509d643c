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
#include "spec/draft_gate.h"
#include "spec/prompt_lookup.h"
#include "spec/step_cost.h"

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
  DraftGate gate;
  /// Guesses of the tokens behind the last known one.
  std::vector<int32_t> drafts;
};

/// Chooses how many tokens of each request are guessed, by what they cost and how often they have
/// been right, and guesses them. Whatever it does, outputs are the same. The loop thread owns it.
class Speculator {
 public:
  /// A draft model has to read a text before it can guess. That is paid, beyond kFreeRead tokens,
  /// from a fund of all requests: kFund steps to begin with, and kFundShare of each confirmed
  /// guess.
  static constexpr double kFund = 16, kMostFund = 64, kFundShare = 0.25;
  static constexpr int32_t kFreeRead = 16;
  /// An MTP block's reading is paid from it, too, at this many times its own time, as the model's
  /// last layer has to compute more rows for it; each step adds kReadShare.
  static constexpr double kMtpReadPrice = 2, kReadShare = 0.01;
  static constexpr int32_t kMostFailures = 3;

  /// REQUIRES: valid options with a method. `draft` is null unless that is "draft_model", and `mtp`
  /// unless it is "mtp".
  explicit Speculator(const SpeculativeOptions& options,
                      std::unique_ptr<DraftModel> draft = nullptr,
                      std::unique_ptr<MtpDrafter> mtp = nullptr);

  /// By the loop thread, before the first step.
  void enter_thread() {
    if (drafter_ != nullptr) drafter_->enter_thread();
  }

  std::unique_ptr<Speculation> start(std::span<const int32_t> prompt) const;

  /// A step of `decodes` requests with a row each, and `drafts` guesses behind them, took
  /// `seconds`. `pure`: it had no other rows.
  void note_step(int32_t decodes, int32_t drafts, bool pure, double seconds);
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
  double read_price() const { return mtp_ ? kMtpReadPrice : 1; }
  bool can_pay(int32_t rows) const;
  void choose_keepers(std::span<const Planned> planned);
  std::string ask_drafter();
  void list_rows(std::span<const Computed> computed);
  void note_draft_times(int32_t read, double seconds);
  void pay_reading(int32_t rows, double seconds);

  const SpeculativeOptions options_;
  const std::unique_ptr<DraftModel> draft_;
  const std::unique_ptr<MtpDrafter> mtp_;
  Drafter* const drafter_;  ///< whichever there is
  std::vector<Drafter::Request> draft_requests_;
  std::vector<MtpDrafter::Computed> computed_;
  std::vector<std::vector<int32_t>> next_tokens_;  ///< of each of them
  // Of the drafter, as learned:
  double seconds_per_guess_ = 0, seconds_per_read_ = 0;
  int32_t failures_ = 0;     ///< of the drafter, in a row
  double base_seconds_ = 0;  ///< of a step without guesses
  double fund_ = kFund;      ///< for reading texts, in steps
  StepCost cost_;
  std::vector<double> costs_;  ///< of 1, 2, ... guesses, at the last step's number of requests
  double cost_each_ = 0;       ///< of a guess of the last step
};

}  // namespace headrace::internal
