#include "cpp/model/golden_expect.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace headrace {

namespace {

double logprob(const std::vector<float>& logits, int32_t token) {
  const double best = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(logit - best);
  return logits[static_cast<size_t>(token)] - best - std::log(sum);
}

/// Largest and summed squared error over rows of logits.
struct Errors {
  double max = 0.0, squares = 0.0;
  size_t count = 0;

  void add(const std::vector<float>& got, const float* want) {
    for (size_t i = 0; i < got.size(); ++i) {
      const double error = std::abs(static_cast<double>(got[i]) - want[i]);
      max = std::max(max, error);
      squares += error * error;
      ++count;
    }
  }
  double rms() const { return std::sqrt(squares / static_cast<double>(count)); }
};

/// Feeds a prompt, then `tokens` one by one; [s] holds the logits that choose token s.
/// `prompt_rows` receives the logits of every prompt row.
std::vector<std::vector<float>> follow(DecoderHarness& harness, const GoldenPrompt& golden,
                                       std::vector<std::vector<float>>* prompt_rows) {
  harness.start(0, static_cast<int32_t>(golden.prompt.size()));
  *prompt_rows = harness.step({{0, golden.prompt}});
  std::vector<std::vector<float>> rows{prompt_rows->back()};
  for (size_t s = 0; s + 1 < golden.tokens.size(); ++s) {
    rows.push_back(harness.step({{0, {golden.tokens[s]}}}).front());
  }
  return rows;
}

}  // namespace

void expect_float32_answers(DecoderHarness& harness, const GoldenCase& golden) {
  Errors errors;
  double logprob_error = 0.0;
  for (const GoldenPrompt& entry : golden.prompts) {
    SCOPED_TRACE(str_cat("prompt of ", entry.prompt.size()));
    std::vector<std::vector<float>> prompt_rows;
    // Fed with the golden tokens and equal to them at each step is greedy decoding.
    const auto rows = follow(harness, entry, &prompt_rows);
    for (size_t s = 0; s < rows.size(); ++s) {
      ASSERT_EQ(argmax(rows[s]), entry.tokens[s]) << "step " << s;
      logprob_error = std::max(
          logprob_error, std::abs(logprob(rows[s], entry.tokens[s]) - entry.token_logprobs[s]));
    }
    for (size_t i = 0; i < golden.steps.size(); ++i) {
      const auto& row = rows[static_cast<size_t>(golden.steps[i])];
      errors.add(row, entry.logits.data() + i * row.size());
    }
    for (size_t i = 0; i + 1 < entry.prompt.size(); ++i) {
      logprob_error = std::max(
          logprob_error,
          std::abs(logprob(prompt_rows[i], entry.prompt[i + 1]) - entry.prompt_logprobs[i]));
    }
  }
  EXPECT_LE(errors.max, golden.logit_tolerance);
  EXPECT_LE(logprob_error, golden.logprob_tolerance);
  testing::Test::RecordProperty("tolerance_share", str_cat(errors.max / golden.logit_tolerance));
}

void expect_bfloat16_answers(DecoderHarness& harness, const GoldenCase& golden, double max_slack) {
  Errors errors;
  for (const GoldenPrompt& entry : golden.prompts) {
    std::vector<std::vector<float>> prompt_rows;
    const auto rows = follow(harness, entry, &prompt_rows);
    for (size_t i = 0; i < golden.steps.size(); ++i) {
      const auto& row = rows[static_cast<size_t>(golden.steps[i])];
      errors.add(row, entry.logits.data() + i * row.size());
    }
  }
  EXPECT_LE(errors.max, max_slack * golden.bfloat16.logits_max);
  EXPECT_LE(errors.rms(), golden.bfloat16.logits_rms);
  testing::Test::RecordProperty("rms_share", str_cat(errors.rms() / golden.bfloat16.logits_rms));
}

// A row's numbers are off by 2^-4 of themselves at most, evenly: by 2^-4 / sqrt(3) in the root mean
// square, and so are sums of products with them, relative to their own root mean square. With
// errors that are independent in the seven linears of each layer, logits are off by up to
// 2^-4 / sqrt(3) sqrt(7 layers) of their own root mean square.
void expect_rounded_answers(DecoderHarness& harness, DecoderHarness& oracle,
                            const GoldenCase& golden) {
  Errors differences, rounding, sizes;
  size_t other_tokens = 0, tokens = 0;
  for (const GoldenPrompt& entry : golden.prompts) {
    std::vector<std::vector<float>> prompt_rows;
    const auto got = follow(harness, entry, &prompt_rows);
    const auto want = follow(oracle, entry, &prompt_rows);
    for (size_t s = 0; s < got.size(); ++s, ++tokens) {
      differences.add(got[s], want[s].data());
      other_tokens += argmax(got[s]) != argmax(want[s]) ? 1 : 0;
    }
    for (size_t i = 0; i < golden.steps.size(); ++i) {
      const auto& row = want[static_cast<size_t>(golden.steps[i])];
      rounding.add(row, entry.logits.data() + i * row.size());
      sizes.add(row, std::vector<float>(row.size()).data());
    }
  }
  const double layers = harness.config().num_layers;
  EXPECT_GT(rounding.rms(), 10 * golden.logit_tolerance) << "nothing is rounded";
  EXPECT_LE(rounding.rms(), 0x1p-4 / std::sqrt(3.0) * std::sqrt(7 * layers) * sizes.rms());
  EXPECT_LE(differences.rms(), rounding.rms() / 10);
  EXPECT_LE(other_tokens, tokens / 50);
  testing::Test::RecordProperty("difference_share", str_cat(differences.rms() / rounding.rms()));
  testing::Test::RecordProperty("rounding_share", str_cat(rounding.rms() / sizes.rms()));
  testing::Test::RecordProperty("other_tokens", str_cat(other_tokens, " of ", tokens));
}

}  // namespace headrace
