// Prefixes that move to host blocks and back.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sched/scheduler.h"

namespace headrace {
namespace {

using Ids = std::vector<SeqId>;

/// 6 blocks of 4 tokens, and as many more in host memory.
SchedulerConfig small() {
  SchedulerConfig config;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 32;
  config.max_model_len = 100;
  config.block_size = 4;
  config.num_blocks = 6;
  config.num_host_blocks = 6;
  return config;
}

SeqSpec spec_of(int32_t length, int32_t max_tokens, int32_t first = 0) {
  SeqSpec spec;
  for (int32_t i = 0; i < length; ++i) spec.prompt.push_back(first + i);
  spec.max_tokens = max_tokens;
  return spec;
}

StepPlan step(Scheduler& scheduler) {
  StepPlan plan = scheduler.plan(0);
  const auto count = std::ranges::count(plan.seqs, true, &PlannedSeq::samples);
  if (!plan.empty()) scheduler.commit(std::vector<int32_t>(static_cast<size_t>(count), 7));
  return plan;
}

/// Runs a request to its end; its first plan.
StepPlan run(Scheduler& scheduler, const SeqSpec& spec) {
  scheduler.add(spec);
  StepPlan first = step(scheduler);
  while (scheduler.has_work()) step(scheduler);
  return first;
}

int64_t count(const StepPlan& plan, bool to_host) {
  return std::ranges::count(plan.copies, to_host, &BlockCopy::to_host);
}

TEST(SchedulerHost, AReturningPromptIsSplitBetweenTheTiers) {
  Scheduler scheduler(small());
  const SeqSpec spec = spec_of(21, 1);
  EXPECT_TRUE(run(scheduler, spec).copies.empty());
  const StepPlan other = run(scheduler, spec_of(9, 1, 50));
  EXPECT_EQ(count(other, true), 2) << "one block is free, three are needed";
  scheduler.add(spec);
  const StepPlan plan = scheduler.plan(0);
  ASSERT_EQ(plan.seqs.size(), 1u);
  EXPECT_EQ(plan.seqs[0].start_pos, 20);
  EXPECT_EQ(scheduler.cached_prompt_tokens(plan.seqs[0].id), 20);
  EXPECT_EQ(scheduler.host_prompt_tokens(plan.seqs[0].id), 8);
  EXPECT_EQ(count(plan, false), 2);
  scheduler.commit(std::vector<int32_t>{7});
  const SchedulerStats stats = scheduler.stats();
  EXPECT_EQ(stats.prefix_hit_tokens, 20u);
  EXPECT_EQ(stats.prefix_host_hit_tokens, 8u);
  EXPECT_EQ(stats.moved_from_host, 2u);
  EXPECT_EQ(stats.moved_to_host, static_cast<uint64_t>(2 + count(plan, true)));
  EXPECT_EQ(stats.cached_host_blocks, count(plan, true));
}

TEST(SchedulerHost, WhoReadsNoCacheBringsNothingBack) {
  Scheduler scheduler(small());
  SeqSpec spec = spec_of(21, 1);
  run(scheduler, spec);
  run(scheduler, spec_of(21, 1, 50));
  spec.read_prefix_cache = false;
  EXPECT_EQ(count(run(scheduler, spec), false), 0);
  EXPECT_EQ(scheduler.stats().prefix_host_hit_tokens, 0u);
}

TEST(SchedulerHost, WhoIsNotAdmittedMovesNothing) {
  Scheduler scheduler(small());
  run(scheduler, spec_of(17, 1));
  scheduler.add(spec_of(16, 5, 50));
  step(scheduler);
  const uint64_t moved = scheduler.stats().moved_to_host;
  scheduler.add(spec_of(17, 1));  // five blocks, while the other has four and wants one
  for (int i = 0; i < 3; ++i) EXPECT_EQ(count(step(scheduler), false), 0);
  EXPECT_LE(scheduler.stats().moved_to_host, moved + 1);
}

TEST(SchedulerHost, ThePreemptedFindTheirBlocksThere) {
  SchedulerConfig config = small();
  config.max_num_seqs = 1;
  config.max_num_batched_tokens = 24;
  Scheduler scheduler(config);
  SeqSpec lazy = spec_of(17, 3);
  lazy.priority = 1;
  const SeqId id = scheduler.add(lazy);
  step(scheduler);
  scheduler.add(spec_of(21, 1, 50));
  const StepPlan urgent = step(scheduler);
  EXPECT_EQ(urgent.preempted, (Ids{id}));
  EXPECT_EQ(count(urgent, true), 4);
  const StepPlan plan = scheduler.plan(0);
  ASSERT_EQ(plan.seqs.size(), 1u);
  EXPECT_EQ(plan.seqs[0].id, id);
  EXPECT_EQ(plan.seqs[0].start_pos, 16);
  EXPECT_EQ(count(plan, false), 4);
  EXPECT_EQ(scheduler.host_prompt_tokens(id), 0) << "the hit of its first admission";
  EXPECT_EQ(scheduler.stats().prefix_host_hit_tokens, 0u);
}

TEST(SchedulerHost, AnAbandonedStepWithCopiesForgetsBothTiers) {
  Scheduler scheduler(small());
  run(scheduler, spec_of(21, 1));
  EXPECT_EQ(scheduler.stats().cached_blocks, 5);
  scheduler.add(spec_of(9, 1, 50));
  EXPECT_FALSE(scheduler.plan(0).copies.empty());
  scheduler.abandon_step();
  EXPECT_EQ(scheduler.stats().cached_blocks, 0);
  EXPECT_EQ(scheduler.stats().cached_host_blocks, 0);
  EXPECT_EQ(scheduler.stats().free_blocks, 6);
}

TEST(SchedulerHost, AnAbandonedStepWithoutCopiesForgetsNothing) {
  Scheduler scheduler(small());
  run(scheduler, spec_of(21, 1));
  run(scheduler, spec_of(9, 1, 50));
  const SchedulerStats before = scheduler.stats();
  scheduler.add(spec_of(2, 1, 90));
  EXPECT_TRUE(scheduler.plan(0).copies.empty());
  scheduler.abandon_step();
  EXPECT_EQ(scheduler.stats().cached_blocks, before.cached_blocks);
  EXPECT_EQ(scheduler.stats().cached_host_blocks, before.cached_host_blocks);
}

}  // namespace
}  // namespace headrace
