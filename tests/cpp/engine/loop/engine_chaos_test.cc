// All at once: too few blocks and state slots, those of the host, steps ahead, guesses, failures,
// cancels and deadlines.

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "fakes/fake_engine.h"

namespace headrace {
namespace {

using testing::fake_greedy;
using testing::FakeEngine;
using testing::FakeShape;
using testing::read_all;
using Ids = std::vector<int32_t>;

struct Chaos {
  std::string name;
  bool ahead = false;
  bool guesses = false;
  OutOfBlocks out_of_blocks = OutOfBlocks::kPreempt;
  int32_t state_slots = 0;
};

FakeEngine make_engine(const Chaos& chaos) {
  ModelOptions options = FakeEngine::default_options();
  options.max_model_len = 160;
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 40;
  options.num_kv_blocks = 14;
  options.out_of_blocks = chaos.out_of_blocks;
  if (chaos.guesses) options.speculative.method = "ngram";
  return FakeEngine(options, FakeShape{.num_host_blocks = 24,
                                       .num_state_slots = chaos.state_slots,
                                       .num_host_state_slots = chaos.state_slots / 3,
                                       .ahead = chaos.ahead});
}

class EngineChaos : public ::testing::TestWithParam<Chaos> {};

TEST_P(EngineChaos, WhateverAnyoneGetsIsRightAndNothingIsLost) {
  const auto seed = static_cast<unsigned>(::testing::UnitTest::GetInstance()->random_seed());
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  FakeEngine fake = make_engine(GetParam());
  std::vector<std::pair<Ids, Request>> requests;
  int next_failure = 0;
  for (int i = 0; i < 400; ++i) {
    // Few beginnings, so that prefixes are shared.
    Ids prompt(static_cast<size_t>(pick(0, 6) * 16), pick(1, 3));
    for (int more = pick(1, 20); more > 0; --more) prompt.push_back(pick(1, 3));
    RequestOptions rest{.priority = pick(-1, 1)};
    if (pick(0, 9) == 0) rest.timeout = std::chrono::microseconds(pick(0, 2000));
    const SamplingParams params{.temperature = 0, .max_tokens = pick(1, 40), .ignore_eos = true};
    requests.emplace_back(prompt, fake.submit(prompt, params, rest));
    if (pick(0, 5) == 0) requests[static_cast<size_t>(pick(0, i))].second.cancel();
    if (fake.control->steps >= next_failure) {  // three in a row would be the model's end
      next_failure = fake.control->steps + pick(5, 15);
      if (GetParam().ahead && pick(0, 1) == 0) {
        fake.control->fail_begins = 1;
      } else {
        fake.control->fail_steps(1);
      }
    }
    if (pick(0, 39) == 0) fake.engine->clear_prefix_cache("m");
    if (pick(0, 1) == 0) std::this_thread::sleep_for(std::chrono::microseconds(pick(0, 300)));
  }
  size_t whole = 0, failed = 0;
  for (auto& [prompt, request] : requests) {
    const Output out = read_all(request.results());
    ASSERT_EQ(out.token_ids, fake_greedy(prompt, static_cast<int32_t>(out.token_ids.size())));
    ASSERT_NE(out.error_code, ErrorCode::kInternal) << out.error_message;
    whole += out.finish_reason == FinishReason::kLength;
    failed += out.error_code == ErrorCode::kDevice;
  }
  EXPECT_GT(whole, 0u);
  EXPECT_GT(failed, 0u);
  fake.engine->stop_model("m");
  const ModelStats stats = fake.engine->model_stats("m");
  EXPECT_EQ(stats.state, ModelState::kStopped);
  EXPECT_EQ(stats.finished_requests, requests.size());
  EXPECT_EQ(stats.free_kv_blocks, stats.total_kv_blocks);
  EXPECT_GT(stats.kv_blocks_to_host, 0u);
  EXPECT_EQ(stats.free_state_slots + stats.cached_state_slots, stats.total_state_slots);
  EXPECT_EQ(stats.snapshots_saved > 0, GetParam().state_slots > 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, EngineChaos,
    ::testing::Values(Chaos{"Plain"}, Chaos{"Ahead", true}, Chaos{"Guesses", false, true},
                      Chaos{"Interrupting", false, false, OutOfBlocks::kInterruptLongest},
                      Chaos{"AheadInterrupting", true, false, OutOfBlocks::kInterruptRandom},
                      Chaos{"States", false, true, OutOfBlocks::kPreempt, 9},
                      Chaos{"StatesAhead", true, false, OutOfBlocks::kInterruptLongest, 15}),
    [](const auto& chaos) { return chaos.param.name; });

}  // namespace
}  // namespace headrace
