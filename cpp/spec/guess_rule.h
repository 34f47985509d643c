#pragma once

#include <cstdint>
#include <vector>

namespace headrace {

/// What the steps of a model cost, in rows. It follows from the model and the device, and nothing
/// is measured.
struct StepCosts {
  /// A step reads the weights and multiplies its rows by them. Reading takes as long as that many
  /// rows do.
  double read_rows = 4;
  /// Of the weights that one row reads, the share that lies in experts; and of all experts, the
  /// share that one row meets.
  double expert_share = 0, experts_met = 1;
  /// What a drafter multiplies a row by, as a share of the weights that the model does.
  double drafter = 0;

  /// Of a step with so many rows.
  double step(double rows) const;
};

/// How often a request's guesses have been right.
class GuessLuck {
 public:
  /// A step of the request had `computed` guesses, the first `confirmed` of which were right.
  void record(int32_t computed, int32_t confirmed);
  /// That a guess is right if those before it are. One of two at first.
  double chance() const { return (right_ + 1.0) / (tried_ + 2.0); }
  /// Whether a guess is due, to see if its luck has changed.
  bool tries_again() const { return pause_ == 0; }

 private:
  int32_t right_ = 0, tried_ = 0;  ///< the latest ones, those that nothing wrong came before
  int32_t pause_ = 0;              ///< steps
};

/// Decides how many tokens are guessed. A guess that is right saves its request a step; it costs a
/// row more in a step that all running requests wait for. As many are made as are expected to save
/// most beyond what they cost. It uses counts and no clock, so it decides the same each time.
///
/// A request for which no guess pays has one in kProbeSteps steps.
///
/// A drafter must also read a text before it can guess. A budget of all requests pays for that. It
/// starts with kFirstRows rows; a confirmed guess adds a quarter of a step, and each row that the
/// model computes adds 1 / kProbeSteps.
class GuessRule {
 public:
  static constexpr int32_t kWindow = 16;  ///< guesses that a request's luck is counted over
  static constexpr int32_t kProbeSteps =
      64;  ///< from one guess that isn't likely to pay to another
  static constexpr double kFirstRows = 256, kShareOfGain = 0.25;

  /// `most`: guesses of a request in a step, >= 1.
  GuessRule(const StepCosts& costs, int32_t most);

  /// A step of `rows` rows has been computed; with `decodes` of them requests went on to their next
  /// token. The next step is likely to have as many of these.
  void note_step(int32_t rows, int32_t decodes);
  /// A request of that step.
  void note_result(GuessLuck& luck, int32_t computed, int32_t confirmed);

  /// How many guesses pay if each is right with that chance.
  int32_t count(double chance) const;
  /// How many a request may have in the next step.
  int32_t allow(const GuessLuck& luck) const;

  /// Whether the budget pays for a drafter's reading of so many rows.
  bool can_read(int32_t rows) const { return rows * costs_.drafter <= budget_; }
  void note_read(int32_t rows) { budget_ -= rows * costs_.drafter; }

 private:
  const StepCosts costs_;
  const double gain_;  ///< rows that the budget gets for a confirmed guess
  double budget_ = kFirstRows;
  int32_t decodes_ = 0;
  std::vector<double> prices_;  ///< of 1, 2, ... guesses of a request, in steps
};

}  // namespace headrace
