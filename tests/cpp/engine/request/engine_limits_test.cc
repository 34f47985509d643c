// What submit() refuses, and that nobody else notices.

#include <gtest/gtest.h>

#include "cpp/engine/expect_error.h"
#include "fakes/fake_engine.h"

namespace headrace {
namespace {

using testing::expect_error;
using testing::FakeEngine;
using testing::read_all;
using Ids = std::vector<int32_t>;

constexpr ErrorCode kInvalid = ErrorCode::kInvalidArgument;

TEST(EngineLimits, BadPromptsAreRefusedByValue) {
  FakeEngine fake;
  expect_error(kInvalid, {"empty"}, [&] { fake.submit({}); });
  expect_error(kInvalid, {"prompt_token_ids[1]", "50"}, [&] { fake.submit({1, 50}); });
  expect_error(kInvalid, {"prompt_token_ids[0]", "-1", "50"}, [&] { fake.submit({-1}); });
  expect_error(kInvalid, {"top_p", "1.5"}, [&] { fake.submit({1}, {.top_p = 1.5f}); });
}

TEST(EngineLimits, TheContextIsAHardLimit) {
  FakeEngine fake;
  expect_error(ErrorCode::kLimitExceeded, {"256", "max_model_len 256", "at least 1"},
               [&] { fake.submit(Ids(256, 1)); });
  expect_error(ErrorCode::kLimitExceeded, {"250", "at least 7", "256"},
               [&] { fake.submit(Ids(250, 1), {.min_tokens = 7}); });

  const Output full =
      read_all(fake.submit(Ids(250, 1), {.temperature = 0, .ignore_eos = true}).results());
  EXPECT_EQ(full.token_ids.size(), 6u) << "as many as the context leaves";
  EXPECT_EQ(full.finish_reason, FinishReason::kLength);
  const Output clamped =
      read_all(fake.submit(Ids(255, 1), {.temperature = 0, .max_tokens = 100, .ignore_eos = true})
                   .results());
  EXPECT_EQ(clamped.token_ids.size(), 1u);
}

TEST(EngineLimits, ARequestThatNeverFitsTheCacheIsRefused) {
  ModelOptions options = FakeEngine::default_options();
  options.num_kv_blocks = 4;  // 64 tokens
  FakeEngine fake(options);
  expect_error(ErrorCode::kLimitExceeded, {"60", "64 tokens", "4 blocks", "max_tokens"},
               [&] { fake.submit(Ids(60, 1), {.temperature = 0}); });
  const Output out = read_all(
      fake.submit(Ids(60, 1), {.temperature = 0, .max_tokens = 4, .ignore_eos = true}).results());
  EXPECT_EQ(out.token_ids.size(), 4u);
}

TEST(EngineLimits, ABadRequestCostsTheOthersNothing) {
  FakeEngine fake;
  Request good = fake.submit({1, 2}, {.temperature = 0, .max_tokens = 30, .ignore_eos = true});
  for (int i = 0; i < 50; ++i) {
    expect_error(kInvalid, {"outside the vocabulary"}, [&] { fake.submit({1, 99}); });
  }
  EXPECT_EQ(read_all(good.results()).token_ids, testing::fake_greedy({1, 2}, 30));
  EXPECT_EQ(fake.engine->model_stats("m").finished_requests, 1u);
}

}  // namespace
}  // namespace headrace
