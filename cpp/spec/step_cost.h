#pragma once

#include <array>
#include <cstdint>

namespace headrace {

/// What steps of so many rows cost, learned from those that were run. Used by one thread.
///
/// Only decode steps are observed: one row for each sequence, and guesses behind them.
class StepCost {
 public:
  static constexpr int32_t kMaxRows = 128;

  void observe(int32_t rows, double seconds);
  /// Seconds of a step with that many rows; 0 before any was observed.
  double seconds(int32_t rows) const;
  /// What `more` rows add to a step of `rows`, as a share of it: at least kLeast a row, and
  /// kUnknown a row as long as no step with more rows has been observed. If the last one was long
  /// ago, less and less (half every kHalfLife steps): things may have changed, so it is tried
  /// again.
  double extra(int32_t rows, int32_t more) const;

  static constexpr double kLeast = 0.02;
  static constexpr double kUnknown = 0.12;
  static constexpr double kHalfLife = 64;

 private:
  struct Entry {
    double seconds = 0;
    uint64_t seen = 0;  ///< when it was observed last; 0: never
  };
  uint64_t now_ = 0;                         ///< steps observed
  std::array<Entry, kMaxRows + 1> entries_;  // by rows
};

}  // namespace headrace
