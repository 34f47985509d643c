#pragma once

// Speculator: guesses of the tokens to come, for the model to confirm several at once.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "headrace/options.h"
#include "spec/draft_gate.h"
#include "spec/prompt_lookup.h"
#include "spec/step_cost.h"

namespace headrace::internal {

/// What guessing keeps of one request.
struct Speculation {
  PromptLookup lookup;
  DraftGate gate;
  /// Guesses of the tokens behind the last known one.
  std::vector<int32_t> drafts;
};

/// Chooses how many tokens of each request are guessed, by what they cost and how often they have
/// been right, and guesses them. Whatever it does, outputs are the same. The loop thread owns it.
class Speculator {
 public:
  /// REQUIRES: valid options with a method.
  explicit Speculator(const SpeculativeOptions& options);

  std::unique_ptr<Speculation> start(std::span<const int32_t> prompt) const;

  /// A step of `decodes` requests with a row each, and `drafts` guesses behind them, took
  /// `seconds`. `pure`: it had no other rows.
  void note_step(int32_t decodes, int32_t drafts, bool pure, double seconds);
  /// A request of that step: `computed` of its guesses were in it, of which `confirmed` were
  /// right.
  void note_result(Speculation& request, int32_t computed, int32_t confirmed) const;
  /// Its output has grown.
  static void append(Speculation& request, std::span<const int32_t> tokens);
  /// Guesses what may follow. Returns how many guesses there are.
  int32_t guess(Speculation& request) const;

 private:
  const SpeculativeOptions options_;
  StepCost cost_;
  std::vector<double> costs_;  ///< of 1, 2, ... guesses, at the last step's number of requests
  double cost_each_ = 0;       ///< of a guess of the last step
};

}  // namespace headrace::internal
