#include "backend/cpu/sample_tokens.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace headrace {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

/// Weights below exp(-12) = 6e-6 are left out at first.
constexpr float kReach = 12.0f;

}  // namespace

BestTokens::BestTokens(const VocabularyPasses& passes, const RowValues& values, Candidate* memory)
    : passes_(passes), values_(values), memory_(memory), buffer_(memory + passes.size()) {
  collect(values.max - kReach);
  // The maximum may be infinite, or so large that the difference is lost.
  if (tokens_.empty()) collect_all();
}

void BestTokens::collect(float threshold) {
  tokens_ = passes_.collect(values_.data, threshold, values_.max, memory_);
}

void BestTokens::collect_all() {
  if (complete_) return;
  collect(kNever);
  complete_ = true;
}

void BestTokens::keep_min_p(float min_p) {
  if (min_p <= 0.0f) return;
  // The threshold lies a little below, so that the weights themselves decide.
  if (std::log(min_p) < 1.0f - kReach) collect_all();
  const auto end = std::remove_if(tokens_.begin(), tokens_.end(),
                                  [&](const Candidate& c) { return c.weight < min_p; });
  tokens_ = {tokens_.begin(), end};
  complete_ = true;
}

void BestTokens::keep_top(size_t count) {
  if (tokens_.size() < count) collect_all();
  tokens_ = tokens_.first(keep_best(tokens_, count, buffer_));
  complete_ = true;
}

double BestTokens::total() const {
  return complete_ ? total_weight(tokens_) : passes_.exp_sum(values_.data, values_.max);
}

FoundCandidate BestTokens::find(double target, Reach reach) {
  if (!complete_ && !(total_weight(tokens_) > target)) collect_all();
  return find_by_weight(tokens_, target, reach, buffer_);
}

std::span<const Candidate> BestTokens::sorted(size_t count) {
  keep_top(count);
  std::sort(tokens_.begin(), tokens_.end(), comes_before);
  return tokens_;
}

}  // namespace headrace
