#include "spec/guess_rule.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace headrace {

double StepCosts::step(double rows) const {
  // Each expert is read if any of the rows meets it; which ones they meet is taken for chance.
  const double met = (1 - std::pow(1 - experts_met, rows)) / experts_met;
  return read_rows * (1 - expert_share + expert_share * met) + rows;
}

void GuessLuck::record(int32_t computed, int32_t confirmed) {
  if (computed == 0) {
    pause_ = std::max(0, pause_ - 1);
    return;
  }
  pause_ = GuessRule::kProbeSteps - 1;
  right_ += confirmed;
  tried_ += std::min(computed, confirmed + 1);
  while (tried_ >= GuessRule::kWindow) {
    right_ /= 2;
    tried_ /= 2;
  }
}

GuessRule::GuessRule(const StepCosts& costs, int32_t most)
    : costs_(costs), gain_(kShareOfGain * costs.step(1)), prices_(static_cast<size_t>(most)) {
  HEADRACE_CHECK(most >= 1, most);
  note_step(0, 1);
}

void GuessRule::note_step(int32_t rows, int32_t decodes) {
  earn(static_cast<double>(rows) / kProbeSteps);
  if (decodes == decodes_ || decodes < 1) return;
  decodes_ = decodes;
  const double base = costs_.step(decodes);
  for (size_t i = 0; i < prices_.size(); ++i) {
    const auto guesses = static_cast<double>(i + 1);
    // All requests of the step wait for the rows. A drafter's step is shared by those that guess.
    prices_[i] = decodes * (costs_.step(decodes + guesses) / base - 1) + guesses * costs_.drafter;
  }
}

void GuessRule::note_result(GuessLuck& luck, int32_t computed, int32_t confirmed) {
  luck.record(computed, confirmed);
  earn(gain_ * confirmed);
}

void GuessRule::earn(double rows) { budget_ = std::min(budget_ + rows, kMostRows); }

int32_t GuessRule::count(double chance) const {
  int32_t best = 0;
  double best_gain = 0, gain = 0, all_right = 1;
  for (size_t i = 0; i < prices_.size(); ++i) {
    all_right *= chance;
    gain += all_right;
    if (gain - prices_[i] <= best_gain) continue;
    best = static_cast<int32_t>(i) + 1;
    best_gain = gain - prices_[i];
  }
  return best;
}

int32_t GuessRule::allow(const GuessLuck& luck) const {
  return std::max(count(luck.chance()), luck.tries_again() ? 1 : 0);
}

}  // namespace headrace
