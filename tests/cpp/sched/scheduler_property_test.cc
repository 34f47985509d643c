#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "cpp/sched/scenario.h"

namespace headrace::fake {
namespace {

/// How many scenarios are tried, and what they reach together: a tenth of `all` under a sanitizer,
/// where each takes ten times as long.
constexpr uint64_t scaled(uint64_t all) {
#if defined(HEADRACE_ASAN) || defined(HEADRACE_TSAN)
  return all / 10;
#else
  return all;
#endif
}

SchedulerConfig random_config(uint64_t seed) {
  std::mt19937_64 random(seed * 7919);
  const auto between = [&](int32_t low, int32_t high) {
    return low + static_cast<int32_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  SchedulerConfig config;
  config.max_num_seqs = between(1, 8);
  config.max_num_batched_tokens = config.max_num_seqs + between(0, 30);
  config.max_prefill_chunk = between(0, 2) == 0 ? between(1, 8) : 0;
  config.block_size = between(1, 5);
  config.num_blocks = between(1, 40);
  config.max_model_len = between(10, 60);
  config.enable_prefix_caching = between(0, 4) > 0;
  config.out_of_blocks = static_cast<OutOfBlocks>(std::max(0, between(0, 5) - 3));
  return config;
}

TEST(SchedulerProperty, EveryRequestGivesWhatItGivesAlone) {
  uint64_t tokens = 0, preemptions = 0, hits = 0;
  for (uint64_t seed = 1; seed <= scaled(10000); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Scenario scenario(random_config(seed), seed);
    scenario.run({});
    if (HasFailure()) return;
    tokens += scenario.tokens_generated();
    preemptions += scenario.last_stats().preemptions;
    hits += scenario.last_stats().prefix_hit_tokens;
  }
  // The scenarios reach what they are meant to reach.
  EXPECT_GT(tokens, scaled(50000));
  EXPECT_GT(preemptions, scaled(1000));
  EXPECT_GT(hits, scaled(10000));
}

TEST(SchedulerProperty, HostBlocksChangeNothingButWhatIsComputed) {
  uint64_t hits = 0, moved = 0, preemptions = 0, lost_caches = 0;
  for (uint64_t seed = 1; seed <= scaled(6000); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SchedulerConfig config = random_config(seed);
    config.num_host_blocks = static_cast<int32_t>(1 + seed % 50);
    Scenario scenario(config, seed);
    scenario.run({.drafts = seed % 3 == 0});
    if (HasFailure()) return;
    hits += scenario.last_stats().prefix_host_hit_tokens;
    moved += scenario.last_stats().moved_to_host;
    preemptions += scenario.last_stats().preemptions;
    lost_caches += scenario.lost_caches();
  }
  EXPECT_GT(hits, scaled(5000));
  EXPECT_GT(moved, scaled(20000));
  EXPECT_GT(preemptions, scaled(500));
  EXPECT_GT(lost_caches, scaled(500));
}

/// Up to two groups that keep all rows, then up to two with windows; at least one.
std::vector<int32_t> random_windows(uint64_t seed) {
  std::mt19937_64 random(seed * 104729);
  std::vector<int32_t> windows(random() % 3, 0);
  for (uint64_t n = random() % 3; n > 0 || windows.empty(); n -= n > 0 ? 1 : 0) {
    windows.push_back(2 + static_cast<int32_t>(random() % 12));
  }
  return windows;
}

TEST(SchedulerProperty, GroupsAndWindowsChangeNothingButTheBlocksThatAreHeld) {
  uint64_t tokens = 0, hits = 0, preemptions = 0, given_back = 0, interrupted = 0, guessed = 0;
  uint64_t host_hits = 0, ahead = 0;
  for (uint64_t seed = 1; seed <= scaled(8000); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SchedulerConfig config = random_config(seed);
    config.windows = random_windows(seed);
    config.num_blocks *= static_cast<int32_t>(config.windows.size());
    if (seed % 3 == 0) config.num_host_blocks = static_cast<int32_t>(1 + seed % 70);
    Scenario scenario(config, seed);
    scenario.run({.priorities = seed % 3 != 0,
                  .drafts = seed % 5 == 0,
                  .media = seed % 2 == 0,
                  .rests = seed % 7 == 0,
                  .postponed = seed % 21 == 7,
                  .ahead = seed % 4 == 1});
    if (HasFailure()) return;
    tokens += scenario.tokens_generated();
    hits += scenario.last_stats().prefix_hit_tokens;
    host_hits += scenario.last_stats().prefix_host_hit_tokens;
    preemptions += scenario.last_stats().preemptions;
    given_back += scenario.given_back();
    interrupted += scenario.interrupted();
    guessed += scenario.guessed();
    ahead += scenario.ahead();
  }
  EXPECT_GT(tokens, scaled(40000));
  EXPECT_GT(hits, scaled(8000));
  EXPECT_GT(host_hits, scaled(1000));
  EXPECT_GT(preemptions, scaled(500));
  EXPECT_GT(given_back, scaled(50000));
  EXPECT_GT(interrupted, scaled(100));
  EXPECT_GT(guessed, scaled(1000));
  EXPECT_GT(ahead, scaled(5000));
}

TEST(SchedulerProperty, MediaShareBlocksWithTheirLikeAlone) {
  uint64_t tokens = 0, hits = 0;
  for (uint64_t seed = 1; seed <= scaled(1000); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SchedulerConfig config = random_config(seed);
    config.out_of_blocks = OutOfBlocks::kPreempt;
    config.num_host_blocks = static_cast<int32_t>(seed % 30);
    Scenario scenario(config, seed);
    scenario.run({.media = true, .ahead = seed % 2 == 0});
    if (HasFailure()) return;
    tokens += scenario.tokens_generated();
    hits += scenario.last_stats().prefix_hit_tokens;
  }
  EXPECT_GT(tokens, scaled(5000));
  EXPECT_GT(hits, scaled(1000));
}

TEST(SchedulerProperty, RowsThatAreNotReadyChangeNothingButWhenTheyAreComputed) {
  uint64_t tokens = 0, rests = 0, hits = 0, preemptions = 0, interrupted = 0, ahead = 0;
  uint64_t postponed = 0;
  for (uint64_t seed = 1; seed <= scaled(4000); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SchedulerConfig config = random_config(seed);
    if (seed % 4 == 0) config.num_host_blocks = static_cast<int32_t>(1 + seed % 50);
    Scenario scenario(config, seed);
    scenario.run({.priorities = seed % 3 != 0,
                  .drafts = seed % 5 == 0,
                  .media = seed % 2 == 0,
                  .rests = true,
                  .postponed = seed % 3 == 1,
                  .ahead = seed % 4 == 1});
    if (HasFailure()) return;
    tokens += scenario.tokens_generated();
    postponed += scenario.postponed();
    rests += scenario.rests();
    hits += scenario.last_stats().prefix_hit_tokens;
    preemptions += scenario.last_stats().preemptions;
    interrupted += scenario.interrupted();
    ahead += scenario.ahead();
  }
  EXPECT_GT(tokens, scaled(20000));
  EXPECT_GT(postponed, scaled(1500));
  EXPECT_GT(rests, scaled(1000));
  EXPECT_GT(hits, scaled(4000));
  EXPECT_GT(preemptions, scaled(200));
  EXPECT_GT(interrupted, scaled(50));
  EXPECT_GT(ahead, scaled(1000));
}

TEST(SchedulerProperty, InterruptedOnesGiveTheBeginningAndTheOthersAll) {
  for (const OutOfBlocks policy : {OutOfBlocks::kInterruptLongest, OutOfBlocks::kInterruptRandom}) {
    uint64_t tokens = 0, interrupted = 0;
    for (uint64_t seed = 1; seed <= scaled(2000); ++seed) {
      SCOPED_TRACE(testing::Message() << "seed " << seed);
      SchedulerConfig config = random_config(seed);
      config.out_of_blocks = policy;
      Scenario scenario(config, seed);
      scenario.run({.priorities = seed % 3 == 0});
      if (HasFailure()) return;
      tokens += scenario.tokens_generated();
      interrupted += scenario.interrupted();
    }
    EXPECT_GT(tokens, scaled(10000));
    EXPECT_GT(interrupted, scaled(200));
  }
}

TEST(SchedulerProperty, GuessesChangeNothingButTheNumberOfSteps) {
  uint64_t guessed = 0, preemptions = 0, interrupted = 0;
  for (uint64_t seed = 1; seed <= scaled(5000); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Scenario scenario(random_config(seed), seed);
    scenario.run({.priorities = seed % 3 == 0, .drafts = true});
    if (HasFailure()) return;
    guessed += scenario.guessed();
    preemptions += scenario.last_stats().preemptions;
    interrupted += scenario.interrupted();
  }
  EXPECT_GT(guessed, scaled(10000));
  EXPECT_GT(preemptions, scaled(500));
  EXPECT_GT(interrupted, scaled(100));
}

TEST(SchedulerProperty, PlansMadeAheadChangeNothingButWhenStepsBegin) {
  uint64_t tokens = 0, ahead = 0, given_up = 0, preemptions = 0, interrupted = 0;
  for (uint64_t seed = 1; seed <= scaled(10000); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SchedulerConfig config = random_config(seed);
    if (seed % 4 == 0) config.num_host_blocks = static_cast<int32_t>(1 + seed % 50);
    Scenario scenario(config, seed);
    scenario.run({.priorities = seed % 3 == 0, .drafts = seed % 5 == 0, .ahead = true});
    if (HasFailure()) return;
    tokens += scenario.tokens_generated();
    ahead += scenario.ahead();
    given_up += scenario.given_up();
    preemptions += scenario.last_stats().preemptions;
    interrupted += scenario.interrupted();
  }
  EXPECT_GT(tokens, scaled(50000));
  EXPECT_GT(ahead, scaled(50000));
  EXPECT_GT(given_up, scaled(5000));
  EXPECT_GT(preemptions, scaled(500));
  EXPECT_GT(interrupted, scaled(200));
}

TEST(SchedulerProperty, ThousandRequestsWithRoomForATenth) {
  for (const uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SchedulerConfig config;
    config.max_num_seqs = 256;
    config.max_num_batched_tokens = 512;
    config.block_size = 16;
    config.max_model_len = 160;
    config.num_blocks = 400;  // requests need 4 blocks on average
    Scenario scenario(config, seed);
    scenario.run(
        {.num_requests = 1000, .arrivals_per_step = 60, .max_prompt = 100, .max_output = 60});
    if (HasFailure()) return;
    EXPECT_GT(scenario.last_stats().preemptions, 0u);
  }
}

TEST(SchedulerProperty, NothingIsLostWithoutCancellation) {
  SchedulerConfig config;
  config.max_num_seqs = 16;
  config.max_num_batched_tokens = 64;
  config.block_size = 4;
  config.max_model_len = 100;
  config.num_blocks = 25;  // one of the largest fits
  for (uint64_t seed = 1; seed <= scaled(20); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Scenario scenario(config, seed);
    scenario.run({.num_requests = 100,
                  .max_prompt = 50,
                  .max_output = 40,
                  .cancellations = false,
                  .deadlines = false,
                  .abandoned_steps = false});
    if (HasFailure()) return;
    EXPECT_GT(scenario.last_stats().preemptions, 0u);
  }
}

}  // namespace
}  // namespace headrace::fake
