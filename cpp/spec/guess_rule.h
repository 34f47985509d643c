#pragma once

#include <cstdint>
#include <vector>

namespace headrace {

/// The cost of a model's steps, in rows. It follows from the model and the device; nothing is
/// measured.
struct StepCosts {
  /// A step reads the weights and multiplies its rows by them. Reading takes as long as this many
  /// rows.
  double read_rows = 4;
  /// expert_share: the share of experts in the weights that one row reads. experts_met: the share
  /// of all experts that one row uses.
  double expert_share = 0, experts_met = 1;
  /// The drafter's weights that a row is multiplied by, as a share of the model's.
  double drafter = 0;

  /// The cost of a step with `rows` rows.
  double step(double rows) const;
};

/// How often a request's guesses have been right.
class GuessLuck {
 public:
  /// A step of the request had `computed` guesses, the first `confirmed` of which were right.
  void record(int32_t computed, int32_t confirmed);
  /// The chance that a guess is right if the guesses before it are. It begins with one half.
  double chance() const { return (right_ + 1.0) / (tried_ + 2.0); }
  /// Whether a guess is due, to see if its luck has changed.
  bool tries_again() const { return pause_ == 0; }

 private:
  int32_t right_ = 0, tried_ = 0;  ///< of the latest guesses, without those after a wrong one
  int32_t pause_ = 0;              ///< steps
};

/// Decides how many tokens are guessed. A right guess saves its request a step. Each guess costs a
/// row in a step that all running requests wait for. The rule picks the number of guesses with the
/// largest expected saving minus cost. It uses counts and no clock, so it decides the same each
/// time.
///
/// If no guess pays for a request, it gets one guess in kProbeSteps steps.
///
/// A drafter must also read a text before it can guess. A budget, shared by all requests, pays for
/// that. It starts with kFirstRows rows. A confirmed guess adds a quarter of a step, and each row
/// that the model computes adds 1 / kProbeSteps. It never holds more than kMostRows: so however
/// long guesses have been right, reading for wrong ones soon ends.
class GuessRule {
 public:
  static constexpr int32_t kWindow = 16;  ///< a request's luck counts so many guesses
  static constexpr int32_t kProbeSteps =
      64;  ///< from one guess that isn't likely to pay to another
  static constexpr double kFirstRows = 256, kMostRows = 16384, kShareOfGain = 0.25;

  /// `most`: guesses of a request in a step, >= 1.
  GuessRule(const StepCosts& costs, int32_t most);

  /// Notes a computed step of `rows` rows, `decodes` of which are decodes. The next step probably
  /// has as many decodes.
  void note_step(int32_t rows, int32_t decodes);
  /// Notes a request of that step.
  void note_result(GuessLuck& luck, int32_t computed, int32_t confirmed);

  /// How many guesses pay if each is right with this chance.
  int32_t count(double chance) const;
  /// How many guesses a request may have in the next step.
  int32_t allow(const GuessLuck& luck) const;

  /// Whether the budget pays for a drafter's reading of `rows` rows.
  bool can_read(int32_t rows) const { return rows * costs_.drafter <= budget_; }
  void note_read(int32_t rows) { budget_ -= rows * costs_.drafter; }

 private:
  void earn(double rows);

  const StepCosts costs_;
  const double gain_;  ///< rows that the budget gets for a confirmed guess
  double budget_ = kFirstRows;
  int32_t decodes_ = 0;
  std::vector<double> prices_;  ///< cost of 1, 2, ... guesses of a request, in steps
};

}  // namespace headrace
