// A model that computes NaN for some rows: their requests end, with what was drawn before, and
// nobody else notices.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fakes/fake_constraint.h"
#include "fakes/fake_engine.h"

namespace headrace {
namespace {

using testing::fake_greedy;
using testing::FakeConstraint;
using testing::FakeEngine;
using testing::FakeShape;
using testing::Following;
using testing::greedy;
using testing::read_all;
using Ids = std::vector<int32_t>;

void expect_not_finite(const Output& out, const Ids& tokens) {
  EXPECT_EQ(out.finish_reason, FinishReason::kError);
  EXPECT_EQ(out.error_code, ErrorCode::kNotFinite);
  EXPECT_STREQ(error_code_name(out.error_code), "not_finite");
  EXPECT_NE(out.error_message.find("NaN or infinity"), std::string::npos) << out.error_message;
  EXPECT_EQ(out.token_ids, tokens);
}

/// Prompts {i} whose greedy outputs of 40 tokens don't have `token`.
std::vector<Ids> prompts_without(int32_t token, size_t count) {
  std::vector<Ids> out;
  for (int32_t i = 1; out.size() < count; ++i) {
    if (i == token || std::ranges::count(fake_greedy({i}, 40), token) > 0) continue;
    out.push_back({i});
  }
  return out;
}

/// Runs one request into a poisoned token, among others.
void expect_one_ends(FakeEngine& fake) {
  const Ids all = fake_greedy({1}, 40);
  const int32_t poison = all[9];
  const Ids before(all.begin(), std::ranges::find(all, poison) + 1);
  const std::vector<Ids> others = prompts_without(poison, 3);
  fake.control->poison = poison;
  fake.control->hold();
  std::vector<Request> requests;
  for (const Ids& prompt : others) requests.push_back(fake.submit(prompt, greedy(40)));
  Request bad = fake.submit({1}, greedy(40));
  fake.control->resume();
  expect_not_finite(read_all(bad.results()), before);
  for (size_t i = 0; i < others.size(); ++i) {
    EXPECT_EQ(read_all(requests[i].results()).token_ids, fake_greedy(others[i], 40));
  }
  fake.control->poison = -1;
  EXPECT_EQ(read_all(fake.submit({1}, greedy(40)).results()).token_ids, all);
  fake.engine->stop_model("m");
  const ModelStats stats = fake.engine->model_stats("m");
  EXPECT_EQ(stats.free_kv_blocks, stats.total_kv_blocks);
  EXPECT_EQ(stats.finished_requests, 5u);
}

TEST(EngineNotFinite, EndsItsRequestAndNoOther) {
  FakeEngine fake;
  expect_one_ends(fake);
}

TEST(EngineNotFinite, EndsItWhereStepsRunAhead) {
  FakeEngine fake(FakeEngine::default_options(), {.ahead = true});
  expect_one_ends(fake);
}

TEST(EngineNotFinite, EndsItAtTheSameTokenBehindGuesses) {
  ModelOptions options = FakeEngine::default_options();
  options.speculative.method = "draft_model";  // always right
  options.speculative.num_speculative_tokens = 5;
  FakeEngine fake(options);
  expect_one_ends(fake);
}

TEST(EngineNotFinite, EndsItInTheMiddleOfAScoredPrompt) {
  ModelOptions options = FakeEngine::default_options();
  options.max_prefill_chunk = 16;
  FakeEngine fake(options);
  Ids prompt(60, 3);
  prompt[40] = 7;
  fake.control->poison = 7;
  SamplingParams sampling = greedy(5);
  sampling.prompt_logprobs = 0;
  expect_not_finite(read_all(fake.submit(prompt, sampling).results()), {});
}

TEST(EngineNotFinite, EndsAGuidedRequestBehindGuesses) {
  ModelOptions options = FakeEngine::default_options();
  options.speculative.method = "ngram";
  FakeEngine fake(options, {.vocab_size = 4});
  const auto in_turn = FakeConstraint::make([](std::span<const int32_t> output) {
    return Following{{output.size() < 30 ? static_cast<int32_t>(output.size() % 2) + 1 : 3}, false};
  });
  Ids expected;
  for (int i = 0; i < 30; ++i) expected.push_back(i % 2 + 1);
  expected.push_back(3);
  fake.control->poison = 3;
  RequestOptions rest;
  rest.constraint = in_turn;
  expect_not_finite(read_all(fake.submit({1, 2, 1, 2}, greedy(100), rest).results()), expected);
}

TEST(EngineNotFinite, APooledRowEndsItsRequestAlone) {
  FakeEngine fake;
  fake.control->poison = 9;
  RequestOptions pooled;
  pooled.pooling = PoolingParams{.pooling = Pooling::kMean, .normalize = false};
  Request bad = fake.submit({3, 9, 5}, {}, pooled);
  Request good = fake.submit({3, 7, 5}, {}, pooled);
  expect_not_finite(read_all(bad.results()), {});
  const Output mean = read_all(good.results());
  EXPECT_EQ(mean.pooled.at(0), 5.0f);
  pooled.pooling = PoolingParams{.normalize = false};
  EXPECT_EQ(read_all(fake.submit({3, 9, 5}, {}, pooled).results()).pooled.at(0), 5.0f);
  pooled.pooling = PoolingParams{.normalize = false, .logit_token_ids = {0}};
  expect_not_finite(read_all(fake.submit({3, 9}, {}, pooled).results()), {});
}

}  // namespace
}  // namespace headrace
