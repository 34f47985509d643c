#pragma once

#include <cstdint>
#include <span>

namespace headrace {

/// Decides how many guesses a request may compute, so that they never slow it noticeably. The unit
/// is a step without guesses; a guess that is confirmed gains one. Used by one thread.
///
/// It keeps an account: each step pays in kShare, each confirmed guess 1, and a step with guesses
/// takes out what they cost. A guess is made only if the account covers its cost, so that what is
/// spent never exceeds kShare x steps + confirmed guesses. Within that, guesses are made as far as
/// their expected gain exceeds their cost; if none does, a single one is tried, after 1, 2, 4, ...
/// kMaxPause steps as long as it fails.
class DraftGate {
 public:
  static constexpr double kShare = 0.02;
  static constexpr double kMost = 3.0;  ///< in the account: long luck buys no long waste
  static constexpr int32_t kMaxPause = 64;

  /// Guesses that the next step may have. costs[i] is what i + 1 of them cost; it rises.
  int32_t allow(std::span<const double> costs) const;
  /// A step has been computed, with `computed` guesses that cost `cost`, of which the first
  /// `confirmed` were right.
  void record(int32_t computed, int32_t confirmed, double cost);

  double account() const noexcept { return account_; }
  /// That a guess is right if those before it were.
  double chance() const noexcept { return chance_; }

 private:
  double account_ = 0;
  double chance_ = 0.6;
  int32_t failures_ = 0;  ///< steps with guesses, none of them right, in a row
  int32_t pause_ = 0;     ///< steps before the next guess
};

}  // namespace headrace
