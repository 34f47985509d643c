// Policies that end a running sequence when no block is left.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "sched/scheduler.h"

namespace headrace {
namespace {

using Ids = std::vector<SeqId>;

SchedulerConfig config_of(OutOfBlocks policy, int32_t num_blocks) {
  SchedulerConfig config;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 32;
  config.max_model_len = 200;
  config.block_size = 4;
  config.num_blocks = num_blocks;
  config.enable_prefix_caching = false;
  config.out_of_blocks = policy;
  return config;
}

SeqSpec spec_of(int32_t length, int32_t max_tokens, int32_t priority = 0) {
  SeqSpec spec;
  spec.prompt.assign(static_cast<size_t>(length), 1);
  spec.max_tokens = max_tokens;
  spec.priority = priority;
  return spec;
}

struct Step {
  Ids planned, interrupted, preempted, ended;
};

Step step(Scheduler& scheduler) {
  const StepPlan plan = scheduler.plan(0);
  Step out{{}, plan.interrupted, plan.preempted, {}};
  std::vector<int32_t> tokens;
  for (const PlannedSeq& seq : plan.seqs) {
    out.planned.push_back(seq.id);
    if (seq.samples) tokens.push_back(7);
  }
  if (plan.empty()) return out;
  for (const CommittedSeq& seq : scheduler.commit(tokens)) {
    if (seq.end != SeqEnd::kNone) out.ended.push_back(seq.id);
  }
  return out;
}

/// Runs until somebody is interrupted; at most 200 steps.
Step until_interrupted(Scheduler& scheduler) {
  Step last;
  for (int i = 0; i < 200 && last.interrupted.empty() && scheduler.has_work(); ++i) {
    last = step(scheduler);
    EXPECT_TRUE(last.preempted.empty());
  }
  return last;
}

TEST(SchedulerInterrupt, APromptDoesNotTakeTheBlockThatADecodeLacks) {
  constexpr int32_t kSeniors = 14;
  SchedulerConfig config = config_of(OutOfBlocks::kInterruptLongest, 2 * kSeniors + 28);
  config.max_num_seqs = 16;
  config.max_prefill_chunk = config.block_size;
  Scheduler scheduler(config);
  for (int32_t i = 0; i < kSeniors; ++i) scheduler.add(spec_of(1, 30));
  const SeqId prompt = scheduler.add(spec_of(100, 2)), decode = scheduler.add(spec_of(3, 30));
  for (int32_t i = 0; i < 10; ++i) EXPECT_TRUE(step(scheduler).interrupted.empty());
  ASSERT_EQ(scheduler.stats().free_blocks, 1);
  // Both need a block now. The prompt is the decode's senior, but it can wait.
  const Step last = step(scheduler);
  EXPECT_EQ(std::ranges::count(last.planned, decode), 1);
  EXPECT_EQ(std::ranges::count(last.planned, prompt), 0);
}

TEST(SchedulerInterrupt, TheLongestEndsAndTheOthersGoOn) {
  Scheduler scheduler(config_of(OutOfBlocks::kInterruptLongest, 8));
  const SeqId a = scheduler.add(spec_of(4, 25)), b = scheduler.add(spec_of(9, 20)),
              c = scheduler.add(spec_of(2, 25));
  const Step first = until_interrupted(scheduler);
  EXPECT_EQ(first.interrupted, (Ids{b}));
  EXPECT_EQ(first.planned, (Ids{a, c})) << "in the same step";
  EXPECT_FALSE(scheduler.cancel(b)) << "it has ended";
  EXPECT_EQ(scheduler.stats().interruptions, 1u);
  EXPECT_EQ(until_interrupted(scheduler).interrupted, (Ids{a}));
  EXPECT_TRUE(until_interrupted(scheduler).interrupted.empty()) << "the last one has all it needs";
  EXPECT_EQ(scheduler.stats().free_blocks, 8);
  EXPECT_FALSE(scheduler.has_work());
}

TEST(SchedulerInterrupt, OfEqualsTheMostJunior) {
  Scheduler scheduler(config_of(OutOfBlocks::kInterruptLongest, 5));
  scheduler.add(spec_of(4, 15));
  const SeqId young = scheduler.add(spec_of(4, 15));
  EXPECT_EQ(until_interrupted(scheduler).interrupted, (Ids{young}));
}

TEST(SchedulerInterrupt, NewcomersWaitUntilThereIsRoom) {
  Scheduler scheduler(config_of(OutOfBlocks::kInterruptLongest, 6));
  const SeqId first = scheduler.add(spec_of(10, 11));
  step(scheduler);
  const SeqId large = scheduler.add(spec_of(15, 9));
  Ids ended;
  while (ended.empty()) {
    const Step now = step(scheduler);
    ASSERT_TRUE(now.interrupted.empty());
    ASSERT_EQ(now.planned, (Ids{first}));
    ended = now.ended;
  }
  EXPECT_EQ(step(scheduler).planned, (Ids{large}));
}

TEST(SchedulerInterrupt, APrefillLeavesTheDecodesTheirBlocks) {
  SchedulerConfig config = config_of(OutOfBlocks::kInterruptLongest, 9);
  config.max_num_batched_tokens = 8;
  Scheduler scheduler(config);
  const SeqId decode = scheduler.add(spec_of(3, 30));
  step(scheduler);
  const SeqId prompt = scheduler.add(spec_of(24, 4));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(scheduler).planned, (Ids{decode, prompt}));
  // The prompt, the longest, ends when the decode needs the last block.
  const Step last = until_interrupted(scheduler);
  EXPECT_EQ(last.interrupted, (Ids{prompt}));
  EXPECT_EQ(last.planned, (Ids{decode}));
}

TEST(SchedulerInterrupt, PromptsThatFillTheBlocksDoNotLockUp) {
  SchedulerConfig config = config_of(OutOfBlocks::kInterruptLongest, 12);
  config.max_prefill_chunk = 2;
  Scheduler scheduler(config);
  scheduler.add(spec_of(30, 10));
  scheduler.add(spec_of(5, 30));
  scheduler.add(spec_of(5, 30));
  int steps = 0;
  for (; scheduler.has_work() && steps < 500; ++steps)
    ASSERT_FALSE(step(scheduler).planned.empty());
  EXPECT_LT(steps, 500);
  EXPECT_EQ(scheduler.stats().free_blocks, 12);
}

TEST(SchedulerInterrupt, RandomVictimsAreTheSameEveryTime) {
  const auto victims = [] {
    Scheduler scheduler(config_of(OutOfBlocks::kInterruptRandom, 24));
    Ids out;
    for (int round = 0; round < 30; ++round) {
      while (scheduler.stats().running + scheduler.stats().waiting < 8) {
        scheduler.add(spec_of(4, 60));
      }
      const Ids now = until_interrupted(scheduler).interrupted;
      out.insert(out.end(), now.begin(), now.end());
    }
    return out;
  };
  const Ids all = victims();
  EXPECT_GE(all.size(), 30u);
  EXPECT_EQ(all, victims());
  // Neither the newest nor the oldest ones every time: the ids come in no order.
  EXPECT_FALSE(std::ranges::is_sorted(all));
  EXPECT_NE(std::ranges::adjacent_find(all, std::less()), all.end());
}

TEST(SchedulerInterrupt, AnUrgentNewcomerDisplacesWithoutEnding) {
  Scheduler scheduler(config_of(OutOfBlocks::kInterruptLongest, 6));
  const SeqId lazy = scheduler.add(spec_of(10, 11, 1));
  step(scheduler);
  const SeqId urgent = scheduler.add(spec_of(12, 4));
  const Step now = step(scheduler);
  EXPECT_EQ(now.preempted, (Ids{lazy}));
  EXPECT_TRUE(now.interrupted.empty());
  EXPECT_EQ(now.planned, (Ids{urgent}));
  EXPECT_TRUE(until_interrupted(scheduler).interrupted.empty()) << "both finish";
}

TEST(SchedulerInterrupt, AnUrgentNewcomerLeavesADecodeTheBlockThatItLacks) {
  Scheduler scheduler(config_of(OutOfBlocks::kInterruptLongest, 6));
  const SeqId decode = scheduler.add(spec_of(3, 6, 1)), lazy = scheduler.add(spec_of(8, 8, 2));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(step(scheduler).planned, (Ids{decode, lazy}));
  ASSERT_EQ(scheduler.stats().free_blocks, 2);
  // Both would do for the newcomer, but one of them is what the decode needs now.
  const SeqId urgent = scheduler.add(spec_of(5, 3));
  const Step now = step(scheduler);
  EXPECT_EQ(now.planned, (Ids{urgent, decode}));
  EXPECT_EQ(now.preempted, (Ids{lazy}));
  EXPECT_TRUE(until_interrupted(scheduler).interrupted.empty()) << "all finish";
}

TEST(SchedulerInterrupt, ADecodeWhoseBlockANewcomerNeedsIsPreempted) {
  Scheduler scheduler(config_of(OutOfBlocks::kInterruptLongest, 3));
  const SeqId decode = scheduler.add(spec_of(3, 6, 1));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(step(scheduler).planned, (Ids{decode}));
  ASSERT_EQ(scheduler.stats().free_blocks, 2);
  const SeqId urgent = scheduler.add(spec_of(5, 3));
  const Step now = step(scheduler);
  EXPECT_EQ(now.planned, (Ids{urgent}));
  EXPECT_EQ(now.preempted, (Ids{decode}));
  EXPECT_TRUE(until_interrupted(scheduler).interrupted.empty()) << "both finish";
}

}  // namespace
}  // namespace headrace
