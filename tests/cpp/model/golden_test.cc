// The decoder against transformers: tests/golden/README.md derives what may differ.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "base/check.h"
#include "cpp/model/decoder_harness.h"
#include "cpp/model/golden_case.h"

namespace headrace {
namespace {

struct Run {
  std::string isa, name;
};

/// Every ISA of this machine with every case that `wanted` picks.
template <class Wanted>
std::vector<Run> runs(Wanted wanted) {
  std::vector<Run> out;
  for (const std::string& name : golden_case_names()) {
    const GoldenCase golden = load_golden_case(name);
    for (const std::string& isa : available_cpu_isas()) {
      if (wanted(isa, golden)) out.push_back({isa, name});
    }
  }
  return out;
}

class Golden : public testing::TestWithParam<Run> {
 protected:
  std::string isa() const { return GetParam().isa; }
  GoldenCase golden() const { return load_golden_case(GetParam().name); }
};
class GoldenFloat32 : public Golden {};
class GoldenStoredDtype : public Golden {};
class GoldenBfloat16 : public Golden {};

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

TEST_P(GoldenFloat32, SameTokensAndLogits) {
  const GoldenCase g = golden();
  DecoderHarness harness(isa(), g.folder, {});
  expect_float32_answers(harness, g);
}

// 16-bit storage keeps weights that the file has in 16 bits exactly: the answers stay.
TEST_P(GoldenStoredDtype, SameTokensAndLogits) {
  const GoldenCase g = golden();
  const DType storage = g.storage == "bfloat16" ? DType::kBF16 : DType::kF16;
  DecoderHarness harness(isa(), g.folder, {.storage = storage});
  expect_float32_answers(harness, g);
}

TEST_P(GoldenBfloat16, NoWorseThanTransformers) {
  const GoldenCase g = golden();
  DecoderHarness harness(isa(), g.folder, {.storage = DType::kBF16, .kv_dtype = DType::kBF16});
  Errors errors;
  for (const GoldenPrompt& entry : g.prompts) {
    std::vector<std::vector<float>> prompt_rows;
    const auto rows = follow(harness, entry, &prompt_rows);
    for (size_t i = 0; i < g.steps.size(); ++i) {
      const auto& row = rows[static_cast<size_t>(g.steps[i])];
      errors.add(row, entry.logits.data() + i * row.size());
    }
  }
  EXPECT_LE(errors.max, g.bfloat16.logits_max);
  EXPECT_LE(errors.rms(), g.bfloat16.logits_rms);
  RecordProperty("rms_share", str_cat(errors.rms() / g.bfloat16.logits_rms));
}

std::string name_of(const testing::TestParamInfo<Run>& test) {
  return test.param.isa + "_" + test.param.name;
}

INSTANTIATE_TEST_SUITE_P(
    Runs, GoldenFloat32,
    testing::ValuesIn(runs([](const std::string&, const GoldenCase&) { return true; })), name_of);

INSTANTIATE_TEST_SUITE_P(Runs, GoldenStoredDtype,
                         testing::ValuesIn(runs([](const std::string& isa,
                                                   const GoldenCase& golden) {
                           // avx512_bf16 rounds the activations that meet bf16 weights.
                           return golden.storage == "float16" ||
                                  (golden.storage == "bfloat16" && isa != "avx512_bf16");
                         })),
                         name_of);

INSTANTIATE_TEST_SUITE_P(Runs, GoldenBfloat16,
                         testing::ValuesIn(runs([](const std::string&, const GoldenCase& golden) {
                           return golden.bfloat16.present;
                         })),
                         name_of);

}  // namespace
}  // namespace headrace
