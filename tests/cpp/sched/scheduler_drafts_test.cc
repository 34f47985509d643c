// Rows for guesses: who gets them, and what becomes of those that are right.

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "headrace/status.h"
#include "sched/scheduler.h"

namespace headrace {
namespace {

using Tokens = std::vector<int32_t>;

SchedulerConfig config_of(int32_t num_blocks, int32_t max_rows = 32) {
  SchedulerConfig config;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = max_rows;
  config.max_model_len = 200;
  config.block_size = 4;
  config.num_blocks = num_blocks;
  return config;
}

SeqSpec spec_of(int32_t length, int32_t max_tokens, int32_t first = 0) {
  SeqSpec spec;
  for (int32_t i = 0; i < length; ++i) spec.prompt.push_back(first + i);
  spec.max_tokens = max_tokens;
  return spec;
}

/// One step without guesses.
void step(Scheduler& scheduler, int32_t token = 7) {
  const StepPlan plan = scheduler.plan(0);
  scheduler.commit(Tokens(plan.seqs.size(), token));
}

TEST(SchedulerDrafts, ADecodeGetsWhatItWishes) {
  Scheduler scheduler(config_of(10));
  const SeqId id = scheduler.add(spec_of(5, 20));
  scheduler.wish_drafts(id, 3);
  EXPECT_EQ(scheduler.plan(0).seqs[0].num_drafts, 0) << "a prefill has nothing to guess";
  scheduler.commit(Tokens{7});
  const StepPlan plan = scheduler.plan(0);
  EXPECT_EQ(plan.seqs[0].num_tokens, 1);
  EXPECT_EQ(plan.seqs[0].num_drafts, 3);
  EXPECT_EQ(plan.num_rows, 4);
  EXPECT_EQ(plan.seqs[0].tables[0].size(), 3u);  // positions 0 .. 8
  const auto committed = scheduler.commit(Tokens{1, 2, 3}, Tokens{3});
  EXPECT_EQ(committed[0].num_tokens, 3);
  EXPECT_EQ(committed[0].token, 3);
  const StepPlan next = scheduler.plan(0);
  EXPECT_EQ(next.seqs[0].start_pos, 8);
  EXPECT_EQ(next.seqs[0].tokens[0], 3);
  EXPECT_EQ(next.seqs[0].tables[0].size(), 3u) << "the block of refused guesses is used again";
  scheduler.commit(Tokens{1});
}

TEST(SchedulerDrafts, TheLastTokenIsNeverComputed) {
  Scheduler scheduler(config_of(10));
  const SeqId id = scheduler.add(spec_of(5, 4));
  step(scheduler);
  scheduler.wish_drafts(id, 100);
  EXPECT_EQ(scheduler.plan(0).seqs[0].num_drafts, 2);
  const auto committed = scheduler.commit(Tokens{1, 2, 3}, Tokens{3});
  EXPECT_EQ(committed[0].end, SeqEnd::kLength);
  EXPECT_EQ(scheduler.stats().free_blocks, 10);
}

TEST(SchedulerDrafts, WhatLiesBehindTheEndIsDropped) {
  SeqSpec spec = spec_of(4, 20);
  spec.end_tokens = {2};
  Scheduler scheduler(config_of(10));
  const SeqId id = scheduler.add(spec);
  step(scheduler);
  scheduler.wish_drafts(id, 3);
  scheduler.plan(0);
  const auto committed = scheduler.commit(Tokens{1, 2, 3, 4}, Tokens{4});
  EXPECT_EQ(committed[0].num_tokens, 2);
  EXPECT_EQ(committed[0].token, 2);
  EXPECT_EQ(committed[0].end, SeqEnd::kStopToken);
  EXPECT_FALSE(scheduler.has_work());
}

TEST(SchedulerDrafts, OnlyConfirmedTokensAreFound) {
  Scheduler scheduler(config_of(10));
  const SeqId id = scheduler.add(spec_of(4, 20));
  step(scheduler, 40);
  scheduler.wish_drafts(id, 5);
  scheduler.plan(0);
  // Computed: 40 41 42, and two refused guesses at positions 7 and 8.
  scheduler.commit(Tokens{41, 42, 43}, Tokens{3});
  scheduler.cancel(id);
  SeqSpec same = spec_of(4, 8);
  for (const int32_t token : {40, 41, 42, 43, 44}) same.prompt.push_back(token);
  const SeqId again = scheduler.add(same);
  scheduler.plan(0);
  EXPECT_EQ(scheduler.cached_prompt_tokens(again), 4) << "the second block was not complete";
}

TEST(SchedulerDrafts, PrefillsAndDecodesComeFirst) {
  Scheduler scheduler(config_of(40, 12));
  const SeqId first = scheduler.add(spec_of(4, 20));
  const SeqId second = scheduler.add(spec_of(4, 20, 50));
  step(scheduler);
  scheduler.wish_drafts(first, 8);
  scheduler.wish_drafts(second, 8);
  scheduler.add(spec_of(6, 20, 100));
  const StepPlan plan = scheduler.plan(0);
  ASSERT_EQ(plan.seqs.size(), 3u);
  EXPECT_EQ(plan.seqs[2].num_tokens, 6);
  EXPECT_EQ(plan.seqs[0].num_drafts, 4) << "what two decodes and the prompt leave of 12";
  EXPECT_EQ(plan.seqs[1].num_drafts, 0);
  scheduler.commit(Tokens{1, 2, 3});
}

TEST(SchedulerDrafts, NoBlockIsTakenThatAnotherWillWant) {
  Scheduler scheduler(config_of(6));
  const SeqId first = scheduler.add(spec_of(6, 15));
  const SeqId second = scheduler.add(spec_of(6, 15, 50));
  for (int i = 0; i < 3; ++i) step(scheduler);
  scheduler.wish_drafts(first, 8);
  scheduler.wish_drafts(second, 8);
  const StepPlan plan = scheduler.plan(0);
  ASSERT_EQ(plan.seqs.size(), 2u);
  EXPECT_EQ(plan.seqs[0].num_drafts, 3) << "as far as its third block goes";
  EXPECT_EQ(plan.seqs[1].num_drafts, 3);
  EXPECT_EQ(scheduler.stats().preemptions, 0u);
  scheduler.commit(Tokens{1, 2});
}

TEST(SchedulerDrafts, CountsMustFitThePlan) {
  Scheduler scheduler(config_of(10));
  const SeqId id = scheduler.add(spec_of(5, 20));
  EXPECT_THROW(scheduler.wish_drafts(id, -1), InternalError);
  EXPECT_THROW(scheduler.wish_drafts(id + 1, 1), InternalError);
  step(scheduler);
  scheduler.wish_drafts(id, 2);
  scheduler.plan(0);
  EXPECT_THROW(scheduler.commit(Tokens{1, 2, 3, 4}, Tokens{4}), InternalError);
  EXPECT_THROW(scheduler.commit(Tokens{1, 2}, Tokens{3}), InternalError);
  EXPECT_THROW(scheduler.commit({}, Tokens{0}), InternalError);
  EXPECT_THROW(scheduler.commit(Tokens{1, 2}, Tokens{1, 1}), InternalError);
  EXPECT_EQ(scheduler.commit(Tokens{1, 2}, Tokens{2})[0].num_tokens, 2);
}

}  // namespace
}  // namespace headrace
