// Sequences whose rows are not ready yet: media that has to be encoded.

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "sched/scheduler.h"

namespace headrace {
namespace {

SchedulerConfig config_of(int32_t num_blocks) {
  SchedulerConfig config;
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 32;
  config.max_model_len = 100;
  config.block_size = 4;
  config.num_blocks = num_blocks;
  return config;
}

SeqSpec spec_of(int32_t length, int32_t max_tokens, int32_t ready_until = kAlwaysReady) {
  SeqSpec spec;
  for (int32_t i = 0; i < length; ++i) spec.prompt.push_back(i);
  spec.max_tokens = max_tokens;
  spec.ready_until = ready_until;
  return spec;
}

StepPlan step(Scheduler& scheduler) {
  StepPlan plan = scheduler.plan(0);
  const auto count = std::ranges::count(plan.seqs, true, &PlannedSeq::samples);
  if (!plan.empty()) scheduler.commit(std::vector<int32_t>(static_cast<size_t>(count), 70));
  return plan;
}

TEST(SchedulerReady, RestsUntilItsRowsAreReady) {
  Scheduler scheduler(config_of(20));
  const SeqId id = scheduler.add(spec_of(10, 2, 3));
  EXPECT_EQ(scheduler.next_position(id), std::nullopt);
  EXPECT_EQ(step(scheduler).num_rows, 3);
  EXPECT_EQ(scheduler.next_position(id), 3);
  EXPECT_TRUE(step(scheduler).empty());
  scheduler.set_ready(id, 8);
  EXPECT_EQ(step(scheduler).num_rows, 5);
  EXPECT_TRUE(step(scheduler).empty());
  scheduler.set_ready(id, kAlwaysReady);
  const StepPlan last = step(scheduler);
  EXPECT_EQ(last.num_rows, 2);
  EXPECT_TRUE(last.seqs[0].samples);
  EXPECT_EQ(step(scheduler).num_rows, 1);
  EXPECT_FALSE(scheduler.has_work());
}

TEST(SchedulerReady, OthersGoOnMeanwhile) {
  Scheduler scheduler(config_of(20));
  const SeqId held_up = scheduler.add(spec_of(10, 2, 0));
  SeqSpec other = spec_of(6, 3);
  other.prompt[0] = 50;
  const SeqId going = scheduler.add(other);
  for (int i = 0; i < 3; ++i) {
    const StepPlan plan = step(scheduler);
    ASSERT_EQ(plan.seqs.size(), 1u);
    EXPECT_EQ(plan.seqs[0].id, going);
  }
  EXPECT_TRUE(step(scheduler).empty());
  scheduler.cancel(held_up);
  EXPECT_EQ(scheduler.stats().free_blocks, 20);
}

TEST(SchedulerReady, WhoSharesItsPrefixWaitsForIt) {
  Scheduler scheduler(config_of(20));
  const SeqId first = scheduler.add(spec_of(13, 1, 0));
  const SeqId second = scheduler.add(spec_of(13, 1, 0));
  EXPECT_TRUE(step(scheduler).empty());
  EXPECT_EQ(scheduler.stats().running, 1);
  scheduler.set_ready(first, kAlwaysReady);
  EXPECT_EQ(step(scheduler).num_rows, 13);
  step(scheduler);  // admits the second, which has its blocks' 12 rows
  EXPECT_EQ(scheduler.next_position(second), 12);
  scheduler.set_ready(second, kAlwaysReady);
  EXPECT_EQ(step(scheduler).num_rows, 1);
  EXPECT_FALSE(scheduler.has_work());
}

TEST(SchedulerReady, PreemptionTakesItBack) {
  Scheduler scheduler(config_of(4));
  SeqSpec urgent = spec_of(12, 2);
  const SeqId id = scheduler.add(spec_of(12, 1, 4));
  step(scheduler);
  scheduler.set_ready(id, kAlwaysReady);
  urgent.priority = -1;
  urgent.prompt[0] = 50;
  const SeqId senior = scheduler.add(urgent);
  EXPECT_EQ(step(scheduler).preempted, std::vector<SeqId>{id});
  scheduler.cancel(senior);
  for (int i = 0; i < 4; ++i) step(scheduler);
  EXPECT_EQ(scheduler.next_position(id), 4);
  scheduler.set_ready(id, kAlwaysReady);
  EXPECT_EQ(step(scheduler).num_rows, 8);
}

}  // namespace
}  // namespace headrace
