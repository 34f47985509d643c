#include "backend/cpu/ops/sample_row.h"

#include <algorithm>
#include <cmath>

#include "backend/contract/philox.h"
#include "backend/cpu/ops/sample_report.h"
#include "backend/cpu/ops/sample_tokens.h"
#include "base/checked_math.h"

namespace headrace {
namespace {

constexpr size_t kAlign = 64;

size_t row_bytes(int32_t vocab_size) {
  return round_up(static_cast<size_t>(vocab_size) * sizeof(float), kAlign);
}

/// Where in the pipeline the reported values are read, in its order.
enum class ReadPoint { kNowhere, kRaw, kPenalized, kProcessed };

ReadPoint read_point(const SampleRow& row) {
  if (row.num_logprobs < 0) return ReadPoint::kNowhere;
  switch (row.logprobs_mode) {
    case LogprobsMode::kRawLogprobs:
    case LogprobsMode::kRawLogits:
      return ReadPoint::kRaw;
    case LogprobsMode::kPenalizedLogprobs:
      return ReadPoint::kPenalized;
    case LogprobsMode::kProcessedLogprobs:
    case LogprobsMode::kProcessedLogits:
      break;
  }
  return ReadPoint::kProcessed;
}

bool divides(const SampleRow& row) { return !row.greedy && row.temperature != 1.0f; }

bool penalizes(const SampleRow& row) {
  return !row.seen.empty() && (row.repetition_penalty != 1.0f || row.frequency_penalty != 0.0f ||
                               row.presence_penalty != 0.0f);
}

bool edits_before_temperature(const SampleRow& row) {
  return !row.bias.empty() || !row.masked.empty() || penalizes(row);
}

/// values[token] = change(values[token]), NaN counting as -inf. Ids beyond the vocabulary are
/// never drawn: nothing to do.
template <class Change>
void edit(float* values, int32_t vocab_size, int32_t token, const Change& change) {
  if (token < 0 || token >= vocab_size) return;
  const float changed = change(values[token]);
  values[token] = std::isnan(changed) ? kNever : changed;
}

void edit_before_temperature(float* values, int32_t vocab_size, const SampleRow& row) {
  for (const LogitBias& b : row.bias) {
    edit(values, vocab_size, b.token, [&](float l) { return l + b.bias; });
  }
  for (const int32_t token : row.masked) {
    edit(values, vocab_size, token, [](float) { return kNever; });
  }
  if (!penalizes(row)) return;
  for (const SeenToken& s : row.seen) {
    const float presence = s.output_count > 0 ? row.presence_penalty : 0.0f;
    const float penalty = static_cast<float>(s.output_count) * row.frequency_penalty + presence;
    edit(values, vocab_size, s.token, [&](float l) {
      return (l < 0 ? l * row.repetition_penalty : l / row.repetition_penalty) - penalty;
    });
  }
}

/// Steps 6 and 7, in place.
RowValues divide_and_ban(const VocabularyPasses& passes, RowValues values, const SampleRow& row,
                         bool max_known) {
  if (divides(row)) values.max = passes.divide(values.data, row.temperature);
  for (const int32_t token : row.banned) {
    edit(values.data, passes.size(), token, [](float) { return kNever; });
  }
  if ((!max_known && !divides(row)) || !row.banned.empty()) {
    values.max = passes.maximum(values.data);
  }
  return values;
}

struct Stages {
  RowValues reported;  ///< at the row's read point
  RowValues processed;
};

/// Steps 3 to 8, in place but for `spare`, where they go on if what was read must stay.
Stages process(const VocabularyPasses& passes, const RowValues& raw, const SampleRow& row,
               float* spare) {
  const ReadPoint read = read_point(row);
  const bool edits = edits_before_temperature(row);
  const bool changes_later = divides(row) || !row.banned.empty();
  RowValues values = raw, reported = raw;
  const auto go_on_in_spare = [&] {
    std::copy_n(values.data, passes.size(), spare);
    values.data = spare;
  };
  if (read == ReadPoint::kRaw && (edits || changes_later)) go_on_in_spare();
  if (edits) edit_before_temperature(values.data, passes.size(), row);
  bool max_known = !edits;
  if (read == ReadPoint::kPenalized) {
    if (!max_known) values.max = passes.maximum(values.data);
    max_known = true;
    reported = values;
    if (changes_later) go_on_in_spare();
  }
  values = divide_and_ban(passes, values, row, max_known);
  if (read == ReadPoint::kProcessed) reported = values;
  return {reported, values};
}

/// Step 9.
int32_t draw(const VocabularyPasses& passes, const RowValues& values, const SampleRow& row,
             Candidate* memory) {
  BestTokens best(passes, values, memory);
  best.keep_min_p(row.min_p);
  if (row.top_k > 0) best.keep_top(static_cast<size_t>(row.top_k));
  double total = best.total();
  if (row.top_p < 1.0f) {
    total = best.find(static_cast<double>(row.top_p) * total, Reach::kAtLeast).reached;
  }
  const double u = static_cast<double>(philox_uniform(row.seed, row.position));
  return best.find(u * total, Reach::kBeyond).candidate.token;
}

int32_t smallest_allowed(const SampleRow& row, int32_t vocab_size) {
  for (int32_t t = 0; row.allowed != nullptr && t < vocab_size; ++t) {
    if (((row.allowed[t / 32] >> (t % 32)) & 1u) != 0) return t;
  }
  return 0;
}

}  // namespace

size_t sample_row_scratch_bytes(int32_t vocab_size) {
  return 2 * row_bytes(vocab_size) +
         round_up(2 * static_cast<size_t>(vocab_size) * sizeof(Candidate), kAlign);
}

void sample_row(const VocabularyPasses& passes, const float* logits, const SampleRow& row,
                std::byte* scratch, SampleResult& result) {
  const size_t bytes = row_bytes(passes.size());
  auto* raw_data = reinterpret_cast<float*>(scratch);
  auto* spare = reinterpret_cast<float*>(scratch + bytes);
  auto* memory = reinterpret_cast<Candidate*>(scratch + 2 * bytes);

  const PreparedLogits prepared = passes.prepare(logits, row.allowed, raw_data);
  const RowValues raw{raw_data, prepared.max};
  const bool is_raw_enough = row.forced_token >= 0 && read_point(row) <= ReadPoint::kRaw;
  const auto [reported, processed] =
      is_raw_enough ? Stages{raw, raw} : process(passes, raw, row, spare);
  result = {};
  result.finite = std::isfinite(prepared.raw_max);
  if (row.forced_token >= 0) {
    result.token = row.forced_token;
  } else if (processed.max == kNever) {
    result.token = smallest_allowed(row, passes.size());
  } else if (row.greedy) {
    result.token = static_cast<int32_t>(passes.find_at_least(processed.data, processed.max));
  } else {
    result.token = draw(passes, processed, row, memory);
  }
  if (row.num_logprobs < 0) return;
  report_logprobs(passes, reported, row, memory, result);
}

}  // namespace headrace
