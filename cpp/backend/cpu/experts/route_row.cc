#include "backend/cpu/experts/route_row.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace headrace {

namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

void softmax(float* x, int32_t count) {
  const float top = *std::max_element(x, x + count);
  float sum = 0.0f;
  for (int32_t i = 0; i < count; ++i) {
    x[i] = std::exp(x[i] - top);
    sum += x[i];
  }
  for (int32_t i = 0; i < count; ++i) x[i] /= sum;
}

void score(const RouterSpec& spec, float* x) {
  if (spec.score == RouterSpec::Score::kSoftmax) return softmax(x, spec.num_experts);
  if (spec.score == RouterSpec::Score::kSoftmaxAfterTopK) return;
  for (int32_t i = 0; i < spec.num_experts; ++i) x[i] = 1.0f / (1.0f + std::exp(-x[i]));
}

/// What experts are compared by.
struct Choice {
  const float* scores;
  const float* correction;
  float operator()(int32_t expert) const {
    const float c = scores[expert] + (correction == nullptr ? 0.0f : correction[expert]);
    return std::isnan(c) ? kLowest : c;
  }
};

/// The best of what is offered in ascending order; the first wins a tie.
class Best {
 public:
  explicit Best(int32_t most) : most_(most) {}

  void offer(int32_t number, float value) {
    if (count_ == most_ && !(value > values_[count_ - 1])) return;
    int32_t at = count_ < most_ ? count_++ : count_ - 1;
    for (; at > 0 && value > values_[at - 1]; --at) {
      values_[at] = values_[at - 1];
      numbers_[at] = numbers_[at - 1];
    }
    values_[at] = value;
    numbers_[at] = number;
  }
  /// Best first.
  const int32_t* begin() const { return numbers_; }
  const int32_t* end() const { return numbers_ + count_; }
  bool holds(int32_t number) const { return std::find(begin(), end(), number) != end(); }

 private:
  int32_t most_, count_ = 0;
  int32_t numbers_[kMaxTopExperts];
  float values_[kMaxTopExperts];
};

float score_group(const RouterSpec& spec, const Choice& choice, int32_t first, int32_t size) {
  float best = choice(first), second = kLowest;
  for (int32_t expert = first + 1; expert < first + size; ++expert) {
    const float c = choice(expert);
    second = std::max(second, std::min(best, c));
    best = std::max(best, c);
  }
  return size == 1 || spec.by_best ? best : best + second;
}

void choose(const RouterSpec& spec, const Choice& choice, int32_t* ids) {
  const int32_t size = spec.num_experts / spec.num_groups;
  Best groups(spec.top_groups), experts(spec.top_k);
  for (int32_t group = 0; group < spec.num_groups; ++group) {
    groups.offer(group,
                 spec.num_groups == 1 ? 0.0f : score_group(spec, choice, group * size, size));
  }
  for (int32_t group = 0; group < spec.num_groups; ++group) {
    if (!groups.holds(group)) continue;
    for (int32_t expert = group * size; expert < (group + 1) * size; ++expert) {
      experts.offer(expert, choice(expert));
    }
  }
  std::copy(experts.begin(), experts.end(), ids);
  std::sort(ids, ids + spec.top_k);
}

}  // namespace

void route_row(const RouterSpec& spec, float* logits, const float* correction, int32_t* ids,
               float* weights) {
  score(spec, logits);
  choose(spec, {logits, correction}, ids);
  for (int32_t i = 0; i < spec.top_k; ++i) weights[i] = logits[ids[i]];
  if (spec.score == RouterSpec::Score::kSoftmaxAfterTopK) softmax(weights, spec.top_k);
  if (spec.normalize) {
    float sum = 0.0f;
    for (int32_t i = 0; i < spec.top_k; ++i) sum += weights[i];
    const float divisor = std::max(sum, spec.norm_min) + spec.norm_eps;
    for (int32_t i = 0; i < spec.top_k; ++i) weights[i] /= divisor;
  }
  for (int32_t i = 0; i < spec.top_k; ++i) weights[i] *= spec.scale;
  if (spec.factors.data == nullptr) return;
  const float* const factors = spec.factors.as<float>();
  for (int32_t i = 0; i < spec.top_k; ++i) weights[i] *= factors[ids[i]];
}

}  // namespace headrace
