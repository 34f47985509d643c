#include "backend/cpu/ops/sample_tokens.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace headrace {
namespace {

/// Distances from the maximum: weights from 0.02, from 6e-6, all.
constexpr float kReach[] = {4.0f, 12.0f, std::numeric_limits<float>::infinity()};

}  // namespace

BestTokens::BestTokens(const VocabularyPasses& passes, const RowValues& values, Candidate* memory)
    : passes_(passes), values_(values), memory_(memory), buffer_(memory + passes.size()) {
  // None are found if the maximum is infinite, or so large that the difference is lost.
  while (tokens_.empty()) widen();
}

void BestTokens::widen() {
  ++stage_;
  complete_ = std::isinf(kReach[stage_]);
  const float threshold = complete_ ? kNever : values_.max - kReach[stage_];
  tokens_ = passes_.collect(values_.data, threshold, values_.max, memory_);
}

void BestTokens::keep_min_p(float min_p) {
  if (min_p <= 0.0f) return;
  // Well within reach, so that the weights themselves decide.
  while (!complete_ && kReach[stage_] < 1.0f - std::log(min_p)) widen();
  const auto end = std::remove_if(tokens_.begin(), tokens_.end(),
                                  [&](const Candidate& c) { return c.weight < min_p; });
  tokens_ = {tokens_.begin(), end};
  complete_ = true;
}

void BestTokens::keep_top(size_t count) {
  while (!complete_ && tokens_.size() < count) widen();
  tokens_ = tokens_.first(keep_best(tokens_, count, buffer_));
  complete_ = true;
}

double BestTokens::total() const {
  return complete_ ? total_weight(tokens_) : passes_.exp_sum(values_.data, values_.max);
}

FoundCandidate BestTokens::find(double target, Reach reach) {
  while (!complete_ && !(total_weight(tokens_) > target)) widen();
  return find_by_weight(tokens_, target, reach, buffer_);
}

std::span<const Candidate> BestTokens::sorted(size_t count) {
  keep_top(count);
  std::sort(tokens_.begin(), tokens_.end(), comes_before);
  return tokens_;
}

}  // namespace headrace
