#pragma once

// The part of a row's vocabulary that a question about its best tokens is answered from.

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cpu/ops/sample_select.h"
#include "backend/cpu/ops/sample_vocabulary.h"

namespace headrace {

/// A row of logits; none is above `max`.
struct RowValues {
  float* data;
  float max;
};

/// The best tokens of a row: at first only those close to the best one, which nearly always are
/// enough; then more, and at last all that are not at -inf.
class BestTokens {
 public:
  /// `memory`: two arrays of passes.size() candidates. REQUIRES: values.max > -inf.
  BestTokens(const VocabularyPasses& passes, const RowValues& values, Candidate* memory);

  /// Drops tokens with exp(value - max) < min_p.
  void keep_min_p(float min_p);
  /// Keeps the `count` best.
  void keep_top(size_t count);

  /// Sum of the weights exp(value - max) of all tokens not dropped.
  double total() const;
  /// See find_by_weight. Both look at all tokens not dropped.
  FoundCandidate find(double target, Reach reach);
  /// The `count` best (fewer if there are no more), best first. Ends the life of the others.
  std::span<const Candidate> sorted(size_t count);

 private:
  /// Takes in more tokens. REQUIRES: !complete_.
  void widen();

  const VocabularyPasses& passes_;
  const RowValues values_;
  Candidate* const memory_;
  Candidate* const buffer_;
  std::span<Candidate> tokens_;
  int stage_ = -1;         ///< how far the tokens reach
  bool complete_ = false;  ///< tokens_ holds every token not dropped
};

}  // namespace headrace
