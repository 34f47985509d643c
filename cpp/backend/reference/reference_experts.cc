#include "backend/reference/reference_experts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

namespace headrace {

namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

std::vector<float> softmax(const std::vector<float>& x) {
  const double top = *std::max_element(x.begin(), x.end());
  double sum = 0.0;
  for (const float l : x) sum += std::exp(static_cast<double>(l) - top);
  std::vector<float> out;
  for (const float l : x) {
    out.push_back(static_cast<float>(std::exp(static_cast<double>(l) - top) / sum));
  }
  return out;
}

std::vector<float> scores_of(const RouterSpec& spec, const std::vector<float>& logits) {
  if (spec.score == RouterSpec::Score::kSoftmax) return softmax(logits);
  if (spec.score == RouterSpec::Score::kSoftmaxAfterTopK) return logits;
  std::vector<float> out;
  for (const float l : logits) {
    out.push_back(static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(l)))));
  }
  return out;
}

/// The numbers of the `count` largest, in ascending order.
std::vector<int32_t> largest(const std::vector<float>& values, int32_t count) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(count));
  std::sort(order.begin(), order.end());
  return order;
}

/// What isn't in one of the best groups becomes NaN.
void keep_best_groups(const RouterSpec& spec, std::vector<float>& choice) {
  const auto size = static_cast<size_t>(spec.num_experts / spec.num_groups);
  std::vector<float> groups;
  for (size_t first = 0; first < choice.size(); first += size) {
    std::vector<float> group(choice.begin() + static_cast<int64_t>(first),
                             choice.begin() + static_cast<int64_t>(first + size));
    std::sort(group.begin(), group.end(), std::greater<>());
    groups.push_back(size == 1 || spec.by_best ? group[0] : group[0] + group[1]);
  }
  const std::vector<int32_t> kept = largest(groups, spec.top_groups);
  for (size_t i = 0; i < choice.size(); ++i) {
    const auto group = static_cast<int32_t>(i / size);
    if (!std::binary_search(kept.begin(), kept.end(), group)) choice[i] = std::nanf("");
  }
}

/// As largest(), of what isn't NaN.
std::vector<int32_t> choose(const std::vector<float>& choice, int32_t count) {
  std::vector<float> kept;
  std::vector<int32_t> numbers, out;
  for (size_t i = 0; i < choice.size(); ++i) {
    if (std::isnan(choice[i])) continue;
    kept.push_back(choice[i]);
    numbers.push_back(static_cast<int32_t>(i));
  }
  for (const int32_t i : largest(kept, count)) out.push_back(numbers[static_cast<size_t>(i)]);
  return out;
}

}  // namespace

void reference_route_row(const RouterSpec& spec, const std::vector<float>& logits,
                         const float* correction, int32_t* ids, float* weights) {
  const std::vector<float> scores = scores_of(spec, logits);
  std::vector<float> choice = scores;
  for (size_t i = 0; i < choice.size(); ++i) {
    if (correction != nullptr) choice[i] += correction[i];
    if (std::isnan(choice[i])) choice[i] = kLowest;
  }
  keep_best_groups(spec, choice);
  const std::vector<int32_t> chosen = choose(choice, spec.top_k);
  std::vector<float> kept;
  for (const int32_t id : chosen) kept.push_back(scores[static_cast<size_t>(id)]);
  if (spec.score == RouterSpec::Score::kSoftmaxAfterTopK) kept = softmax(kept);
  double divisor = 1.0;
  if (spec.normalize) {
    const double sum = std::accumulate(kept.begin(), kept.end(), 0.0);
    divisor =
        std::max(sum, static_cast<double>(spec.norm_min)) + static_cast<double>(spec.norm_eps);
  }
  for (size_t i = 0; i < chosen.size(); ++i) {
    ids[i] = chosen[i];
    const double factor =
        spec.factors.data == nullptr ? 1.0 : double{spec.factors.as<float>()[chosen[i]]};
    weights[i] = static_cast<float>(static_cast<double>(kept[i]) / divisor *
                                    static_cast<double>(spec.scale) * factor);
  }
}

}  // namespace headrace
