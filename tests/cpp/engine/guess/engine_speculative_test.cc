// Guessing tokens changes how many steps an output takes, and nothing else.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "engine/engine_access.h"
#include "fakes/fake_constraint.h"
#include "fakes/fake_engine.h"

namespace headrace {
namespace {

using testing::FakeConstraint;
using testing::FakeEngine;
using testing::Following;
using testing::read_all;
using Ids = std::vector<int32_t>;

constexpr int32_t kFewTokens = 4;  // so few that guesses are often right

ModelOptions guessing(ModelOptions options = FakeEngine::default_options()) {
  options.speculative.method = "ngram";
  options.speculative.num_speculative_tokens = 5;
  options.speculative.max_ngram_size = 3;
  return options;
}

/// By prompt lookup, by the same model, by another one, by one that fails; or by an MTP block that
/// is as good.
ModelOptions guessing_by(const std::string& name) {
  ModelOptions out = guessing();
  if (name == "ngram") return out;
  const bool mtp = name.starts_with("mtp_");
  out.speculative.method = mtp ? "mtp" : "draft_model";
  out.speculative.model = mtp ? name.substr(4) : name;
  return out;
}

struct Job {
  Ids prompt;
  SamplingParams sampling;
  RequestOptions rest;
};

/// The tokens 1, 2, 3, and the end once there are `least`.
std::shared_ptr<FakeConstraint> in_turn(size_t least) {
  return FakeConstraint::make([=](std::span<const int32_t> output) {
    return Following{{static_cast<int32_t>(output.size() % 3) + 1}, output.size() >= least};
  });
}

Job random_job(std::mt19937& random) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  Job job;
  job.prompt.assign(static_cast<size_t>(pick(0, 40)), pick(1, 3));
  for (int i = pick(1, 40); i > 0; --i) job.prompt.push_back(pick(1, 3));
  SamplingParams& p = job.sampling;
  p.max_tokens = pick(1, 120);
  p.min_tokens = pick(0, std::min(20, p.max_tokens));
  p.temperature = pick(0, 1) ? 0.0f : 1.0f;
  p.seed = static_cast<uint64_t>(pick(0, 1000));
  p.ignore_eos = pick(0, 3) > 0;
  if (pick(0, 3) == 0) p.repetition_penalty = 1.1f;
  if (pick(0, 3) == 0) p.frequency_penalty = 0.05f;
  if (pick(0, 3) == 0) p.bad_words = {{pick(1, 3), pick(1, 3), pick(1, 3)}};
  if (pick(0, 7) == 0) p.no_repeat_ngram_size = 6;
  if (pick(0, 3) == 0) p.stop_sequences = {{pick(1, 3), pick(1, 3), pick(1, 3), pick(1, 3)}};
  if (pick(0, 3) == 0) p.logprobs = pick(0, 3);
  if (pick(0, 7) == 0) p.prompt_logprobs = pick(0, 3);
  job.rest.priority = pick(-1, 1);
  if (pick(0, 7) == 0) {
    job.rest.constraint = in_turn(static_cast<size_t>(pick(0, 30)));
    p.no_repeat_ngram_size = 0;
    p.bad_words = {};
  }
  return job;
}

void expect_same(const Output& a, const Output& b, size_t which) {
  EXPECT_EQ(a.token_ids, b.token_ids) << which;
  EXPECT_EQ(a.finish_reason, b.finish_reason) << which << a.error_message;
  EXPECT_EQ(a.stop_token, b.stop_token) << which;
  ASSERT_EQ(a.logprobs.size(), b.logprobs.size()) << which;
  for (size_t i = 0; i < a.logprobs.size(); ++i) {
    EXPECT_EQ(a.logprobs[i].token, b.logprobs[i].token);
    EXPECT_EQ(a.logprobs[i].logprob, b.logprobs[i].logprob);
    EXPECT_EQ(a.logprobs[i].top, b.logprobs[i].top);
  }
  ASSERT_EQ(a.prompt_logprobs.size(), b.prompt_logprobs.size()) << which;
  for (size_t i = 0; i < a.prompt_logprobs.size(); ++i) {
    EXPECT_EQ(a.prompt_logprobs[i].logprob, b.prompt_logprobs[i].logprob);
  }
}

class EngineSpeculative : public ::testing::TestWithParam<const char*> {
 protected:
  ModelOptions options() const { return guessing_by(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Methods, EngineSpeculative,
                         ::testing::Values("ngram", "same", "other", "failing", "mtp_same",
                                           "mtp_other", "mtp_failing"),
                         [](const auto& method) { return std::string(method.param); });

TEST_P(EngineSpeculative, OutputsAreTheSame) {
  const auto seed = static_cast<unsigned>(::testing::UnitTest::GetInstance()->random_seed());
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::vector<Job> jobs;
  for (int i = 0; i < 150; ++i) jobs.push_back(random_job(random));
  std::vector<Output> expected;
  {
    FakeEngine plain(FakeEngine::default_options(), {.vocab_size = kFewTokens});
    for (const Job& job : jobs) {
      expected.push_back(read_all(plain.submit(job.prompt, job.sampling, job.rest).results()));
    }
    EXPECT_EQ(plain.engine->model_stats("m").drafted_tokens, 0u);
  }
  struct Shape {
    int32_t seqs, tokens, chunk, block_size, blocks, logit_rows;
  };
  for (const Shape& shape : {Shape{1, 64, 0, 16, 64, 8}, Shape{8, 64, 0, 16, 64, 3},
                             Shape{32, 70, 7, 16, 20, 16}, Shape{64, 200, 50, 64, 12, 5}}) {
    ModelOptions options = this->options();
    options.max_num_seqs = shape.seqs;
    options.max_num_batched_tokens = shape.tokens;
    options.max_prefill_chunk = shape.chunk;
    options.block_size = shape.block_size;
    options.num_kv_blocks = shape.blocks;
    FakeEngine fake(options, {.vocab_size = kFewTokens, .max_logit_rows = shape.logit_rows});
    std::vector<Request> requests;
    fake.control->hold();
    for (const Job& job : jobs) {
      requests.push_back(fake.submit(job.prompt, job.sampling, job.rest));
    }
    fake.control->resume();
    for (size_t i = 0; i < jobs.size(); ++i) {
      expect_same(read_all(requests[i].results()), expected[i], i);
    }
    const ModelStats stats = fake.engine->model_stats("m");
    EXPECT_EQ(stats.free_kv_blocks, shape.blocks);
    EXPECT_LE(stats.accepted_tokens, stats.drafted_tokens);
    EXPECT_EQ(fake.control->mtp_mistakes, 0);
    if (shape.seqs == 1 && options.speculative.method == "ngram") {
      EXPECT_GT(stats.accepted_tokens, 0u) << "meant to guess right";
    }
    if (shape.blocks == 20) {
      EXPECT_GT(stats.preemptions, 0u) << "meant to be short of blocks";
    }
  }
}

TEST(EngineGuesses, RightGuessesSaveSteps) {
  FakeEngine fake(guessing());
  const int before = fake.control->steps;
  SamplingParams sampling{.temperature = 0, .max_tokens = 200, .ignore_eos = true};
  RequestOptions rest;
  rest.constraint = in_turn(1000);
  Request request = fake.submit({9}, sampling, rest);
  const Output out = read_all(request.results());
  ASSERT_EQ(out.token_ids.size(), 200u);
  for (size_t i = 0; i < 200; ++i) EXPECT_EQ(out.token_ids[i], static_cast<int32_t>(i % 3) + 1);
  const ModelStats stats = fake.engine->model_stats("m");
  EXPECT_LT(fake.control->steps - before, 200) << "of 200 tokens";
  EXPECT_EQ(stats.steps + stats.accepted_tokens, 200u);
  EXPECT_EQ(stats.generated_tokens, 200u);
  EXPECT_EQ(request.results().stats().generated_tokens, 200);
}

TEST(EngineGuesses, RandomTextIsHardlyGuessed) {
  ModelOptions options = guessing();
  options.max_model_len = 2048;
  options.num_kv_blocks = 128;
  FakeEngine fake(options);
  SamplingParams sampling{.temperature = 1, .seed = 1, .max_tokens = 2000, .ignore_eos = true};
  read_all(fake.submit({5}, sampling).results());
  const ModelStats stats = fake.engine->model_stats("m");
  EXPECT_LT(stats.drafted_tokens, stats.steps / 8 + 10 * stats.accepted_tokens + 20);
}

TEST(EngineGuesses, AConstraintMayEndBehindAGuess) {
  FakeEngine fake(guessing());
  const auto limited = FakeConstraint::make([](std::span<const int32_t> output) {
    return output.size() < 50 ? Following{{static_cast<int32_t>(output.size() % 3) + 1}, false}
                              : Following{{}, true};
  });
  RequestOptions rest;
  rest.constraint = limited;
  for (int i = 0; i < 20; ++i) {
    SamplingParams sampling{.temperature = 0, .max_tokens = 200, .ignore_eos = i % 2 == 0};
    const Output out = read_all(fake.submit({9, i % 5}, sampling, rest).results());
    EXPECT_EQ(out.finish_reason, FinishReason::kStop) << out.error_message;
    EXPECT_EQ(out.token_ids.size(), i % 2 == 0 ? 50u : 51u);
  }
  EXPECT_GT(fake.engine->model_stats("m").accepted_tokens, 0u);
}

TEST_P(EngineSpeculative, AFailedStepEndsItsOwnRequests) {
  FakeEngine fake(options(), {.vocab_size = kFewTokens});
  SamplingParams sampling{.temperature = 0, .max_tokens = 150, .ignore_eos = true};
  fake.control->hold();
  Request request = fake.submit({1, 1, 1}, sampling);
  fake.control->wait_until_held();
  for (int i = 0; i < 20; ++i) {
    fake.control->step_once();
    fake.control->wait_until_held();
  }
  fake.control->fail_steps(1);
  fake.control->resume();
  EXPECT_EQ(read_all(request.results()).finish_reason, FinishReason::kError);
  EXPECT_EQ(read_all(fake.submit({1, 1, 1}, sampling).results()).token_ids.size(), 150u);
}

class EngineDrafts : public ::testing::TestWithParam<const char*> {
 protected:
  /// "draft_" or "mtp_": a model of that kind.
  ModelOptions options(const std::string& quality) const {
    const std::string kind = GetParam();
    return guessing_by(kind == "mtp" ? "mtp_" + quality : quality);
  }
};

INSTANTIATE_TEST_SUITE_P(Kinds, EngineDrafts, ::testing::Values("draft_model", "mtp"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST_P(EngineDrafts, TheSameModelIsAlwaysRight) {
  FakeEngine fake(options("same"));
  for (const float temperature : {0.0f, 1.0f}) {
    SamplingParams sampling{
        .temperature = temperature, .seed = 3, .max_tokens = 200, .ignore_eos = true};
    read_all(fake.submit({1, 2, 3, 4, 5}, sampling).results());
  }
  const ModelStats stats = fake.engine->model_stats("m");
  EXPECT_GT(stats.drafted_tokens, 0u);
  EXPECT_EQ(stats.accepted_tokens, stats.drafted_tokens);
  EXPECT_EQ(stats.steps + stats.accepted_tokens, 400u);
}

TEST_P(EngineDrafts, AModelThatFailsIsGivenUp) {
  FakeEngine fake(options("failing"));
  SamplingParams sampling{.temperature = 0, .max_tokens = 200, .ignore_eos = true};
  const Output output = read_all(fake.submit({1, 2, 3, 4, 5}, sampling).results());
  EXPECT_EQ(output.token_ids.size(), 200u);
  const ModelStats stats = fake.engine->model_stats("m");
  EXPECT_EQ(stats.drafted_tokens, 0u);
  EXPECT_EQ(stats.steps, 200u);
}

TEST_P(EngineDrafts, AnotherModelIsHardlyAsked) {
  FakeEngine fake(options("other"));
  SamplingParams sampling{.temperature = 0, .max_tokens = 240, .ignore_eos = true};
  for (int i = 0; i < 4; ++i) read_all(fake.submit({1, i}, sampling).results());
  const ModelStats stats = fake.engine->model_stats("m");
  EXPECT_LT(stats.drafted_tokens, stats.steps / 4 + 10 * stats.accepted_tokens);
}

// What an MTP block reads of texts is paid from a budget: one that is large and never right is off.
TEST(EngineGuesses, AnMtpBlockThatDoesNotPayIsOff) {
  FakeEngine fake(guessing_by("mtp_other"), {.costs = {.drafter = 1}});
  SamplingParams sampling{.temperature = 0, .max_tokens = 12, .ignore_eos = true};
  constexpr int kRequests = 30, kLength = 60;
  for (int i = 0; i < kRequests; ++i) {
    Ids prompt(kLength, 1 + i % 40);
    prompt.front() = i;
    EXPECT_EQ(read_all(fake.submit(prompt, sampling).results()).token_ids.size(), 12u);
  }
  EXPECT_GT(fake.control->mtp_rows, 0);
  EXPECT_LT(fake.control->mtp_rows, kRequests * kLength / 3) << "rows that the block has computed";
}

// Rows between guesses are read many at a time, and hits, preemption and host blocks leave no row
// in another's place: the fake checks what every row that is read was made of.
TEST(EngineGuesses, AnMtpBlockGuessesBehindSharedPrefixes) {
  FakeEngine fake(guessing_by("mtp_same"));
  SamplingParams sampling{.temperature = 0, .max_tokens = 40, .ignore_eos = true};
  Ids prompt(50, 7);
  const Ids first = read_all(fake.submit(prompt, sampling).results()).token_ids;
  const uint64_t before = fake.engine->model_stats("m").accepted_tokens;
  EXPECT_GT(before, 0u);
  EXPECT_EQ(read_all(fake.submit(prompt, sampling).results()).token_ids, first);
  const ModelStats stats = fake.engine->model_stats("m");
  EXPECT_GT(stats.prefix_hit_tokens, 0u);
  EXPECT_GT(stats.accepted_tokens, before) << "behind a hit";
  EXPECT_EQ(fake.control->mtp_mistakes, 0);
  EXPECT_EQ(stats.accepted_tokens, stats.drafted_tokens);
}

}  // namespace
}  // namespace headrace
