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

/// What scenarios reach together.
struct Reached {
  uint64_t tokens = 0, hits = 0, host_hits = 0, moved = 0, lost_caches = 0, given_back = 0;
  uint64_t preemptions = 0, interrupted = 0, guessed = 0, ahead = 0, given_up = 0;
  uint64_t rests = 0, postponed = 0, whole_items = 0;
  uint64_t continued = 0, saved = 0, written = 0, evicted = 0, restored = 0;

  void add(const Scenario& scenario) {
    const SchedulerStats& stats = scenario.last_stats();
    tokens += scenario.tokens_generated();
    hits += stats.prefix_hit_tokens;
    host_hits += stats.prefix_host_hit_tokens;
    moved += stats.moved_to_host;
    lost_caches += scenario.lost_caches();
    given_back += scenario.given_back();
    preemptions += stats.preemptions;
    interrupted += scenario.interrupted();
    guessed += scenario.guessed();
    ahead += scenario.ahead();
    given_up += scenario.given_up();
    rests += scenario.rests();
    postponed += scenario.postponed();
    whole_items += scenario.whole_items();
    continued += scenario.continued();
    saved += scenario.saved();
    written += stats.snapshots_written;
    evicted += stats.snapshots_evicted;
    restored += stats.snapshots_restored;
  }
};

/// A scenario for each seed up to `count`, until one fails: of the random configuration that
/// `adapt` has changed, with the options that it returns.
template <class Adapt>
Reached run_scenarios(uint64_t count, const Adapt& adapt) {
  Reached reached;
  for (uint64_t seed = 1; seed <= count && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SchedulerConfig config = random_config(seed);
    const Scenario::Options options = adapt(seed, config);
    Scenario scenario(config, seed);
    scenario.run(options);
    reached.add(scenario);
  }
  return reached;
}

using Options = Scenario::Options;

TEST(SchedulerProperty, EveryRequestGivesWhatItGivesAlone) {
  const Reached reached =
      run_scenarios(scaled(10000), [](uint64_t, SchedulerConfig&) { return Options{}; });
  if (HasFailure()) return;
  EXPECT_GT(reached.tokens, scaled(50000));
  EXPECT_GT(reached.preemptions, scaled(1000));
  EXPECT_GT(reached.hits, scaled(10000));
}

TEST(SchedulerProperty, HostBlocksChangeNothingButWhatIsComputed) {
  const Reached reached = run_scenarios(scaled(6000), [](uint64_t seed, SchedulerConfig& config) {
    config.num_host_blocks = static_cast<int32_t>(1 + seed % 50);
    return Options{.drafts = seed % 3 == 0};
  });
  if (HasFailure()) return;
  EXPECT_GT(reached.host_hits, scaled(5000));
  EXPECT_GT(reached.moved, scaled(20000));
  EXPECT_GT(reached.preemptions, scaled(500));
  EXPECT_GT(reached.lost_caches, scaled(500));
}

/// Of all kinds of rows and plans.
Options mixed_options(uint64_t seed) {
  return {.priorities = seed % 3 != 0,
          .drafts = seed % 5 == 0,
          .media = seed % 2 == 0,
          .rests = seed % 7 == 0,
          .postponed = seed % 21 == 7,
          .ahead = seed % 4 == 1};
}

/// Up to two groups that keep all rows, then up to two, or twenty, with windows; at least one.
/// Windows may be shorter than a block, and longer than all sequences. The first is not 1: the
/// fake model reads the position before a row.
std::vector<int32_t> random_windows(uint64_t seed) {
  std::mt19937_64 random(seed * 104729);
  std::vector<int32_t> windows(random() % 3, 0);
  uint64_t sliding = random() % 20 == 0 ? 20 : random() % 3;
  if (windows.empty()) sliding = std::max<uint64_t>(sliding, 1);
  for (; sliding > 0; --sliding) {
    const auto shortest = windows.empty() ? 2 : 1;
    const bool is_long = random() % 10 == 0;
    windows.push_back(is_long ? 1 << 30 : shortest + static_cast<int32_t>(random() % 12));
  }
  return windows;
}

TEST(SchedulerProperty, GroupsAndWindowsChangeNothingButTheBlocksThatAreHeld) {
  const Reached reached = run_scenarios(scaled(8000), [](uint64_t seed, SchedulerConfig& config) {
    config.windows = random_windows(seed);
    config.num_blocks *= static_cast<int32_t>(config.windows.size());
    if (seed % 3 == 0) config.num_host_blocks = static_cast<int32_t>(1 + seed % 70);
    return mixed_options(seed);
  });
  if (HasFailure()) return;
  EXPECT_GT(reached.tokens, scaled(40000));
  EXPECT_GT(reached.hits, scaled(8000));
  EXPECT_GT(reached.host_hits, scaled(1000));
  EXPECT_GT(reached.preemptions, scaled(500));
  EXPECT_GT(reached.given_back, scaled(50000));
  EXPECT_GT(reached.interrupted, scaled(100));
  EXPECT_GT(reached.guessed, scaled(1000));
  EXPECT_GT(reached.ahead, scaled(5000));
}

TEST(SchedulerProperty, StatesAreThoseOfTheTokensBeforeThem) {
  const Reached reached = run_scenarios(scaled(12000), [](uint64_t seed, SchedulerConfig& config) {
    std::mt19937_64 random(seed * 15485863);
    const auto below = [&](uint64_t n) { return static_cast<int32_t>(random() % n); };
    config.num_state_slots = config.max_num_seqs + below(3) * below(8);
    config.snapshot_interval = config.block_size * (1 + below(3));
    if (below(3) == 0) config.num_host_state_slots = 1 + below(10);
    if (below(3) == 0) config.num_host_blocks = 1 + below(50);
    if (below(3) == 0) {
      config.windows = random_windows(seed);
      config.num_blocks *= static_cast<int32_t>(config.windows.size());
    }
    Options options = mixed_options(seed);
    options.postponed = false;
    options.drafts = below(3) == 0;
    return options;
  });
  if (HasFailure()) return;
  EXPECT_GT(reached.tokens, scaled(60000));
  EXPECT_GT(reached.preemptions, scaled(1000));
  EXPECT_GT(reached.interrupted, scaled(100));
  EXPECT_GT(reached.guessed, scaled(1000));
  EXPECT_GT(reached.ahead, scaled(5000));
  EXPECT_GT(reached.lost_caches, scaled(100));
  EXPECT_GT(reached.continued, scaled(3000));
  EXPECT_GT(reached.saved, scaled(10000));
  EXPECT_GT(reached.written, scaled(10000));
  EXPECT_GT(reached.evicted, scaled(5000));
  EXPECT_GT(reached.restored, scaled(500));
}

TEST(SchedulerProperty, MediaShareBlocksWithTheirLikeAlone) {
  const Reached reached = run_scenarios(scaled(1000), [](uint64_t seed, SchedulerConfig& config) {
    config.out_of_blocks = OutOfBlocks::kPreempt;
    config.num_host_blocks = static_cast<int32_t>(seed % 30);
    return Options{.media = true, .ahead = seed % 2 == 0};
  });
  if (HasFailure()) return;
  EXPECT_GT(reached.tokens, scaled(5000));
  EXPECT_GT(reached.hits, scaled(1000));
}

/// Windows, too, may be shorter than an item.
TEST(SchedulerProperty, RowsThatSeeEachOtherComeInOneStep) {
  const Reached reached = run_scenarios(scaled(6000), [](uint64_t seed, SchedulerConfig& config) {
    if (seed % 3 == 0) config.num_host_blocks = static_cast<int32_t>(1 + seed % 50);
    if (seed % 5 < 2) {
      config.windows = random_windows(seed);
      config.num_blocks *= static_cast<int32_t>(config.windows.size());
    }
    Options options = mixed_options(seed);
    options.media = options.whole_items = true;
    if (seed % 4 == 1) options.longest_item = 18;
    config.most_item_rows =
        std::min(options.longest_item, config.max_num_batched_tokens - (config.max_num_seqs - 1));
    return options;
  });
  if (HasFailure()) return;
  EXPECT_GT(reached.tokens, scaled(20000));
  EXPECT_GT(reached.whole_items, scaled(10000));
  EXPECT_GT(reached.hits, scaled(4000));
  EXPECT_GT(reached.preemptions, scaled(200));
  EXPECT_GT(reached.interrupted, scaled(50));
  EXPECT_GT(reached.rests, scaled(100));
  EXPECT_GT(reached.ahead, scaled(1000));
}

TEST(SchedulerProperty, RowsThatAreNotReadyChangeNothingButWhenTheyAreComputed) {
  const Reached reached = run_scenarios(scaled(4000), [](uint64_t seed, SchedulerConfig& config) {
    if (seed % 4 == 0) config.num_host_blocks = static_cast<int32_t>(1 + seed % 50);
    Options options = mixed_options(seed);
    options.rests = true;
    options.postponed = seed % 3 == 1;
    return options;
  });
  if (HasFailure()) return;
  EXPECT_GT(reached.tokens, scaled(20000));
  EXPECT_GT(reached.postponed, scaled(1500));
  EXPECT_GT(reached.rests, scaled(1000));
  EXPECT_GT(reached.hits, scaled(4000));
  EXPECT_GT(reached.preemptions, scaled(200));
  EXPECT_GT(reached.interrupted, scaled(50));
  EXPECT_GT(reached.ahead, scaled(1000));
}

TEST(SchedulerProperty, InterruptedOnesGiveTheBeginningAndTheOthersAll) {
  for (const OutOfBlocks policy : {OutOfBlocks::kInterruptLongest, OutOfBlocks::kInterruptRandom}) {
    const Reached reached =
        run_scenarios(scaled(2000), [&](uint64_t seed, SchedulerConfig& config) {
          config.out_of_blocks = policy;
          return Options{.priorities = seed % 3 == 0};
        });
    if (HasFailure()) return;
    EXPECT_GT(reached.tokens, scaled(10000));
    EXPECT_GT(reached.interrupted, scaled(200));
  }
}

TEST(SchedulerProperty, GuessesChangeNothingButTheNumberOfSteps) {
  const Reached reached = run_scenarios(scaled(5000), [](uint64_t seed, SchedulerConfig&) {
    return Options{.priorities = seed % 3 == 0, .drafts = true};
  });
  if (HasFailure()) return;
  EXPECT_GT(reached.guessed, scaled(10000));
  EXPECT_GT(reached.preemptions, scaled(500));
  EXPECT_GT(reached.interrupted, scaled(100));
}

TEST(SchedulerProperty, PlansMadeAheadChangeNothingButWhenStepsBegin) {
  const Reached reached = run_scenarios(scaled(10000), [](uint64_t seed, SchedulerConfig& config) {
    if (seed % 4 == 0) config.num_host_blocks = static_cast<int32_t>(1 + seed % 50);
    return Options{.priorities = seed % 3 == 0, .drafts = seed % 5 == 0, .ahead = true};
  });
  if (HasFailure()) return;
  EXPECT_GT(reached.tokens, scaled(50000));
  EXPECT_GT(reached.ahead, scaled(50000));
  EXPECT_GT(reached.given_up, scaled(5000));
  EXPECT_GT(reached.preemptions, scaled(500));
  EXPECT_GT(reached.interrupted, scaled(200));
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
