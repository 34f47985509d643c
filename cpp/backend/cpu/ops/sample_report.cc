#include "backend/cpu/ops/sample_report.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace headrace {
namespace {

/// What a token's logit is reported as.
struct Scale {
  float max = 0.0f;
  std::optional<double> log_total;       ///< none: logits as they are
  std::optional<Candidate> last_inside;  ///< of the top_p set; tokens after it are at -inf

  bool is_inside(float value, int32_t token) const {
    return value > kNever &&
           (!last_inside || !comes_before(*last_inside, Candidate{value, 0.0f, token}));
  }
  float reported(float value, int32_t token) const {
    if (!is_inside(value, token)) return kNever;
    if (!log_total) return value;
    const double distance = value == max ? 0.0 : static_cast<double>(value) - max;
    return static_cast<float>(distance - *log_total);
  }
};

bool is_logits(LogprobsMode mode) {
  return mode == LogprobsMode::kRawLogits || mode == LogprobsMode::kProcessedLogits;
}

Scale make_scale(const VocabularyPasses& passes, const RowValues& values, const SampleRow& row,
                 Candidate* memory) {
  Scale scale;
  scale.max = values.max;
  const bool raw = row.logprobs_mode == LogprobsMode::kRawLogprobs;
  if (is_logits(row.logprobs_mode) || values.max == kNever) return scale;
  double total = passes.exp_sum(values.data, values.max);
  if (raw && row.top_p_normalized_logprobs && row.top_p < 1.0f) {
    BestTokens best(passes, values, memory);
    const FoundCandidate found = best.find(static_cast<double>(row.top_p) * total, Reach::kAtLeast);
    scale.last_inside = found.candidate;
    total = found.reached;
  }
  scale.log_total = std::log(total);
  return scale;
}

int32_t rank_of(const VocabularyPasses& passes, const RowValues& values, const Scale& scale,
                int32_t token) {
  const float value = values.data[token];
  if (scale.is_inside(value, token) || !scale.last_inside) {
    return 1 + static_cast<int32_t>(passes.count_greater(values.data, value));
  }
  const Candidate& last = *scale.last_inside;
  int64_t inside = passes.count_greater(values.data, last.value);
  for (int32_t t = 0; t <= last.token; ++t) inside += values.data[t] == last.value;
  return 1 + static_cast<int32_t>(inside);
}

/// The best tokens, then those at -inf by id.
void list_best(const VocabularyPasses& passes, const RowValues& values, const Scale& scale,
               size_t count, Candidate* memory, std::vector<TokenLogprob>& top) {
  count = std::min(count, static_cast<size_t>(passes.size()));
  top.reserve(count);
  if (values.max > kNever && count > 0) {
    BestTokens best(passes, values, memory);
    for (const Candidate& c : best.sorted(count)) {
      if (!scale.is_inside(c.value, c.token)) break;
      top.push_back({c.token, scale.reported(c.value, c.token)});
    }
  }
  for (int32_t t = 0; top.size() < count; ++t) {
    if (!scale.is_inside(values.data[t], t)) top.push_back({t, kNever});
  }
}

}  // namespace

void report_logprobs(const VocabularyPasses& passes, RowValues values, const SampleRow& row,
                     Candidate* memory, SampleResult& result) {
  if (row.logprobs_mode == LogprobsMode::kRawLogprobs && row.temperature_scaled_logprobs &&
      !row.greedy && row.temperature != 1.0f) {
    values.max = passes.divide(values.data, row.temperature);
  }
  const Scale scale = make_scale(passes, values, row, memory);
  result.logprob = scale.reported(values.data[result.token], result.token);
  result.rank = rank_of(passes, values, scale, result.token);
  list_best(passes, values, scale, static_cast<size_t>(row.num_logprobs), memory, result.top);
}

}  // namespace headrace
