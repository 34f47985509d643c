// Prefixes that leave the KV cache for host blocks and come back, over fake models.

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "fakes/fake_engine.h"

namespace headrace {
namespace {

using testing::fake_greedy;
using testing::FakeEngine;
using testing::FakeShape;
using testing::read_all;
using Ids = std::vector<int32_t>;

constexpr SamplingParams kShort{.temperature = 0, .max_tokens = 2};

/// 12 blocks of 16 tokens, and `host` more in host memory.
FakeEngine small_engine(int32_t host, int32_t max_loras = 0, bool ahead = false) {
  ModelOptions options = FakeEngine::default_options();
  options.max_model_len = 160;
  options.num_kv_blocks = 12;
  options.max_loras = max_loras;
  return FakeEngine(options, FakeShape{.num_host_blocks = host, .ahead = ahead});
}

Ids prompt_of(int32_t first, size_t length) {
  Ids prompt(length);
  std::iota(prompt.begin(), prompt.end(), 0);
  for (int32_t& token : prompt) token = 1 + (first + 7 * token) % 49;
  return prompt;
}

RequestStats run(FakeEngine& fake, const Ids& prompt, RequestOptions rest = {}) {
  Request request = fake.submit(prompt, kShort, std::move(rest));
  const Output out = read_all(request.results());
  EXPECT_EQ(out.error_code, ErrorCode::kOk) << out.error_message;
  return request.results().stats();
}

TEST(EngineSwap, APromptComesBackFromHostBlocks) {
  FakeEngine fake = small_engine(20);
  const Ids first = prompt_of(1, 140), other = prompt_of(20, 140);
  EXPECT_EQ(run(fake, first).cached_tokens, 0);
  EXPECT_EQ(run(fake, other).cached_tokens, 0);
  const ModelStats before = fake.engine->model_stats("m");
  EXPECT_GT(before.kv_blocks_to_host, 0u);
  EXPECT_EQ(before.cached_host_kv_blocks, static_cast<int32_t>(before.kv_blocks_to_host));

  Request again = fake.submit(first, kShort);
  EXPECT_EQ(read_all(again.results()).token_ids, fake_greedy(first, 2));
  const RequestStats stats = again.results().stats();
  EXPECT_EQ(stats.cached_tokens, 128);
  EXPECT_GT(stats.host_cached_tokens, 0);
  EXPECT_LT(stats.host_cached_tokens, 128) << "its beginning has not left";
  const ModelStats after = fake.engine->model_stats("m");
  EXPECT_EQ(after.prefix_hit_tokens, 128u);
  EXPECT_EQ(after.prefix_host_hit_tokens, static_cast<uint64_t>(stats.host_cached_tokens));
  EXPECT_EQ(after.kv_blocks_from_host * 16, after.prefix_host_hit_tokens);
  EXPECT_EQ(after.kv_blocks_to_host + after.kv_blocks_from_host,
            static_cast<uint64_t>(fake.control->copies));
}

TEST(EngineSwap, WithoutHostBlocksItIsComputedAgain) {
  FakeEngine fake = small_engine(0);
  const Ids first = prompt_of(1, 140);
  run(fake, first);
  run(fake, prompt_of(20, 140));
  const RequestStats stats = run(fake, first);
  EXPECT_LT(stats.cached_tokens, 128);
  EXPECT_EQ(stats.host_cached_tokens, 0);
  EXPECT_EQ(fake.control->copies, 0);
}

TEST(EngineSwap, ClearingForgetsBothTiers) {
  FakeEngine fake = small_engine(20);
  const Ids first = prompt_of(1, 140);
  run(fake, first);
  run(fake, prompt_of(20, 140));
  fake.engine->clear_prefix_cache("m");
  EXPECT_EQ(fake.engine->model_stats("m").cached_kv_blocks, 0);
  EXPECT_EQ(fake.engine->model_stats("m").cached_host_kv_blocks, 0);
  EXPECT_EQ(run(fake, first).cached_tokens, 0);
}

TEST(EngineSwap, AdaptersDoNotShareHostBlocks) {
  FakeEngine fake = small_engine(30, 2);
  fake.engine->load_lora("m", "five", "5");
  const Ids prompt = prompt_of(1, 140);
  RequestOptions adapted;
  adapted.lora_name = "five";
  run(fake, prompt, adapted);
  EXPECT_EQ(run(fake, prompt).cached_tokens, 0) << "computed without the adapter";
  EXPECT_EQ(run(fake, prompt, adapted).cached_tokens, 128);
  EXPECT_EQ(run(fake, prompt).cached_tokens, 128);
  EXPECT_GT(fake.engine->model_stats("m").prefix_host_hit_tokens, 0u);
}

TEST(EngineSwap, AFailedStepLeavesNothingWrongBehind) {
  FakeEngine fake = small_engine(20);
  const Ids first = prompt_of(1, 140);
  run(fake, first);
  run(fake, prompt_of(20, 140));
  fake.control->fail_steps(1);
  Request failed = fake.submit(first, kShort);
  EXPECT_EQ(read_all(failed.results()).error_code, ErrorCode::kDevice);
  EXPECT_EQ(fake.engine->model_stats("m").cached_host_kv_blocks, 0);
  EXPECT_EQ(fake.engine->model_stats("m").free_kv_blocks, 12);
  Request again = fake.submit(first, kShort);
  EXPECT_EQ(read_all(again.results()).token_ids, fake_greedy(first, 2));
  EXPECT_EQ(again.results().stats().cached_tokens, 0);
}

// Most of these are preempted, and find what they had in host blocks.
TEST(EngineSwap, RandomRequestsGiveWhatTheyGiveAlone) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    FakeEngine fake =
        small_engine(static_cast<int32_t>(1 + random() % 40), 0, /*ahead=*/seed % 2 == 0);
    std::vector<std::pair<Ids, Request>> requests;
    for (int i = 0; i < 40; ++i) {
      Ids prompt = prompt_of(static_cast<int32_t>(random() % 3), 1 + random() % 110);
      prompt.push_back(static_cast<int32_t>(1 + random() % 49));
      Request request = fake.submit(prompt, {.temperature = 0,
                                             .max_tokens = static_cast<int32_t>(1 + random() % 40),
                                             .ignore_eos = true});
      requests.emplace_back(std::move(prompt), std::move(request));
    }
    for (auto& [prompt, request] : requests) {
      const Output out = read_all(request.results());
      ASSERT_EQ(out.error_code, ErrorCode::kOk) << out.error_message;
      ASSERT_EQ(out.token_ids, fake_greedy(prompt, static_cast<int32_t>(out.token_ids.size())));
    }
    EXPECT_GT(fake.engine->model_stats("m").kv_blocks_to_host, 0u);
  }
}

}  // namespace
}  // namespace headrace
