#include "backend/reference/reference_sample.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "backend/checks/op_checks_attention.h"
#include "backend/contract/philox.h"

namespace headrace {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

float nan_to_never(float x) { return std::isnan(x) ? kNever : x; }

bool is_allowed(const SampleRow& row, int32_t token) {
  return row.allowed == nullptr || ((row.allowed[token / 32] >> (token % 32)) & 1u) != 0;
}

bool is_finite(const float* logits, int32_t vocab_size) {
  bool any = false;
  for (int32_t t = 0; t < vocab_size; ++t) {
    if (std::isnan(logits[t]) || logits[t] == -kNever) return false;
    any = any || logits[t] > kNever;
  }
  return any;
}

std::vector<float> raw_values(const float* logits, int32_t vocab_size, const SampleRow& row) {
  std::vector<float> values(static_cast<size_t>(vocab_size), kNever);
  for (int32_t t = 0; t < vocab_size; ++t) {
    if (is_allowed(row, t)) values[static_cast<size_t>(t)] = nan_to_never(logits[t]);
  }
  return values;
}

template <class Change>
void edit(std::vector<float>& values, int32_t token, const Change& change) {
  if (token < 0 || static_cast<size_t>(token) >= values.size()) return;
  float& value = values[static_cast<size_t>(token)];
  value = nan_to_never(change(value));
}

void ban(std::vector<float>& values, std::span<const int32_t> tokens) {
  for (const int32_t t : tokens) edit(values, t, [](float) { return kNever; });
}

std::vector<float> penalized_values(std::vector<float> values, const SampleRow& row) {
  for (const LogitBias& b : row.bias) edit(values, b.token, [&](float l) { return l + b.bias; });
  ban(values, row.masked);
  for (const SeenToken& s : row.seen) {
    const float count = static_cast<float>(s.output_count);
    const float presence = s.output_count > 0 ? row.presence_penalty : 0.0f;
    edit(values, s.token, [&](float l) {
      const float r = row.repetition_penalty;
      return (l < 0 ? l * r : l / r) - (count * row.frequency_penalty + presence);
    });
  }
  return values;
}

/// Of penalized ones.
std::vector<float> processed_values(std::vector<float> values, const SampleRow& row) {
  if (!row.greedy) {
    for (float& value : values) value /= row.temperature;
  }
  ban(values, row.banned);
  return values;
}

std::vector<int32_t> best_first(const std::vector<float>& values) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  return order;
}

/// exp(value - max) of each value: the largest get 1.
std::vector<double> weights_of(const std::vector<float>& values) {
  const double max = static_cast<double>(*std::max_element(values.begin(), values.end()));
  std::vector<double> weights(values.size(), 0.0);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<double>(values[i]);
    if (values[i] > kNever) weights[i] = value == max ? 1.0 : std::exp(value - max);
  }
  return weights;
}

/// Length of the smallest prefix of `order` whose weight reaches top_p of the first `length`'s.
size_t top_p_prefix(const std::vector<int32_t>& order, const std::vector<double>& weights,
                    size_t length, float top_p) {
  if (top_p >= 1.0f) return length;
  const auto weight = [&](size_t i) { return weights[static_cast<size_t>(order[i])]; };
  double total = 0;
  for (size_t i = 0; i < length; ++i) total += weight(i);
  double sum = 0;
  for (size_t i = 0; i < length; ++i) {
    sum += weight(i);
    if (sum >= static_cast<double>(top_p) * total) return i + 1;
  }
  return length;
}

/// Step 9 without the draw: the tokens kept, best first.
std::vector<int32_t> kept_tokens(const std::vector<float>& values,
                                 const std::vector<double>& weights, const SampleRow& row) {
  std::vector<int32_t> order = best_first(values);
  size_t length = 0;
  while (length < order.size() && values[static_cast<size_t>(order[length])] > kNever &&
         weights[static_cast<size_t>(order[length])] >= static_cast<double>(row.min_p)) {
    ++length;
  }
  if (row.top_k > 0) length = std::min(length, static_cast<size_t>(row.top_k));
  order.resize(top_p_prefix(order, weights, length, row.top_p));
  return order;
}

int32_t draw(const std::vector<float>& values, const SampleRow& row) {
  if (row.greedy) return best_first(values)[0];
  const std::vector<double> weights = weights_of(values);
  const std::vector<int32_t> kept = kept_tokens(values, weights, row);
  double total = 0;
  for (const int32_t t : kept) total += weights[static_cast<size_t>(t)];
  const double target = static_cast<double>(philox_uniform(row.seed, row.position)) * total;
  double sum = 0;
  for (const int32_t t : kept) {
    sum += weights[static_cast<size_t>(t)];
    if (sum > target) return t;
  }
  return kept.back();
}

/// Values as the mode reports them. Normalises to log-probabilities and, for
/// top_p_normalized_logprobs, drops what is outside of the set from `values` too.
std::vector<float> reported_values(std::vector<float>& values, const SampleRow& row) {
  const bool raw = row.logprobs_mode == LogprobsMode::kRawLogprobs;
  if (row.logprobs_mode == LogprobsMode::kRawLogits ||
      row.logprobs_mode == LogprobsMode::kProcessedLogits) {
    return values;
  }
  if (raw && row.temperature_scaled_logprobs && !row.greedy) {
    for (float& value : values) value /= row.temperature;
  }
  const float max = *std::max_element(values.begin(), values.end());
  if (max == kNever) return values;
  const std::vector<double> weights = weights_of(values);
  if (raw && row.top_p_normalized_logprobs) {
    const std::vector<int32_t> order = best_first(values);
    for (size_t i = top_p_prefix(order, weights, order.size(), row.top_p); i < order.size(); ++i) {
      values[static_cast<size_t>(order[i])] = kNever;
    }
  }
  double total = 0;
  for (size_t i = 0; i < values.size(); ++i) total += values[i] > kNever ? weights[i] : 0.0;
  std::vector<float> out(values.size(), kNever);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] == kNever) continue;
    const double distance =
        values[i] == max ? 0.0 : static_cast<double>(values[i]) - static_cast<double>(max);
    out[i] = static_cast<float>(distance - std::log(total));
  }
  return out;
}

void report(std::vector<float> values, const SampleRow& row, SampleResult& result) {
  const std::vector<float> reported = reported_values(values, row);
  const size_t token = static_cast<size_t>(result.token);
  result.logprob = reported[token];
  result.rank =
      1 + static_cast<int32_t>(std::count_if(values.begin(), values.end(),
                                             [&](float value) { return value > values[token]; }));
  std::vector<int32_t> order = best_first(values);
  order.resize(std::min(order.size(), static_cast<size_t>(row.num_logprobs)));
  for (const int32_t t : order) result.top.push_back({t, reported[static_cast<size_t>(t)]});
}

void sample_row(const float* logits, int32_t vocab_size, const SampleRow& row,
                SampleResult& result) {
  const std::vector<float> raw = raw_values(logits, vocab_size, row);
  const std::vector<float> penalized = penalized_values(raw, row);
  const std::vector<float> processed = processed_values(penalized, row);
  result = {};
  result.finite = is_finite(logits, vocab_size);
  if (row.forced_token >= 0) {
    result.token = row.forced_token;
  } else if (*std::max_element(processed.begin(), processed.end()) > kNever) {
    result.token = draw(processed, row);
  } else {
    for (int32_t t = vocab_size - 1; t >= 0; --t) {
      if (is_allowed(row, t)) result.token = t;
    }
  }
  if (row.num_logprobs < 0) return;
  switch (row.logprobs_mode) {
    case LogprobsMode::kRawLogprobs:
    case LogprobsMode::kRawLogits:
      return report(raw, row, result);
    case LogprobsMode::kPenalizedLogprobs:
      return report(penalized, row, result);
    case LogprobsMode::kProcessedLogprobs:
    case LogprobsMode::kProcessedLogits:
      return report(processed, row, result);
  }
}

}  // namespace

void reference_sample(TensorView logits, int32_t vocab_size, std::span<const SampleRow> rows,
                      std::span<SampleResult> results) {
  check_sample(logits, vocab_size, rows, results);
  for (size_t i = 0; i < rows.size(); ++i) {
    sample_row(logits.row<float>(rows[i].logits_row), vocab_size, rows[i], results[i]);
  }
}

std::vector<double> reference_distribution(const float* logits, int32_t vocab_size,
                                           const SampleRow& row) {
  const std::vector<float> values =
      processed_values(penalized_values(raw_values(logits, vocab_size, row), row), row);
  std::vector<double> out(values.size(), 0.0);
  if (*std::max_element(values.begin(), values.end()) == kNever) return out;
  const std::vector<double> weights = weights_of(values);
  const std::vector<int32_t> kept = kept_tokens(values, weights, row);
  double total = 0;
  for (const int32_t t : kept) total += weights[static_cast<size_t>(t)];
  for (const int32_t t : kept) {
    out[static_cast<size_t>(t)] = weights[static_cast<size_t>(t)] / total;
  }
  return out;
}

}  // namespace headrace
