// Who gets what in a step: rows, places, blocks, prefixes.

#include "sched/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "headrace/status.h"

namespace headrace {
namespace {

using Ids = std::vector<SeqId>;

SchedulerConfig config_of(int32_t num_blocks, int32_t block_size = 4) {
  SchedulerConfig config;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 32;
  config.max_model_len = 200;
  config.block_size = block_size;
  config.num_blocks = num_blocks;
  return config;
}

/// A prompt of `length` tokens first, first + 1, ...
SeqSpec spec_of(int32_t length, int32_t max_tokens, int32_t first = 0) {
  SeqSpec spec;
  for (int32_t i = 0; i < length; ++i) spec.prompt.push_back(first + i);
  spec.max_tokens = max_tokens;
  return spec;
}

Ids ids_of(const StepPlan& plan) {
  Ids out;
  for (const PlannedSeq& seq : plan.seqs) out.push_back(seq.id);
  return out;
}

std::vector<int32_t> rows_of(const StepPlan& plan) {
  std::vector<int32_t> out;
  for (const PlannedSeq& seq : plan.seqs) out.push_back(seq.num_tokens);
  return out;
}

/// Commits with token 7 for everyone who samples.
std::vector<CommittedSeq> commit(Scheduler& scheduler, const StepPlan& plan, int32_t token = 7) {
  const auto count = std::ranges::count(plan.seqs, true, &PlannedSeq::samples);
  return scheduler.commit(std::vector<int32_t>(static_cast<size_t>(count), token));
}

StepPlan step(Scheduler& scheduler, double now = 0) {
  StepPlan plan = scheduler.plan(now);
  if (!plan.empty()) commit(scheduler, plan);
  return plan;
}

void drain(Scheduler& scheduler) {
  for (int i = 0; scheduler.has_work(); ++i) {
    ASSERT_LT(i, 10000);
    step(scheduler);
  }
}

TEST(Scheduler, DecodesComeBeforePrefillChunks) {
  SchedulerConfig config = config_of(100);
  config.max_num_batched_tokens = 10;
  Scheduler scheduler(config);
  scheduler.add(spec_of(3, 50));
  scheduler.add(spec_of(4, 50));
  EXPECT_EQ(rows_of(step(scheduler)), (std::vector<int32_t>{3, 4}));
  SeqSpec urgent = spec_of(30, 5, 100);
  urgent.priority = -1;
  const SeqId id = scheduler.add(urgent);
  // Even the most senior prompt leaves each decode its row.
  for (const int32_t start : {0, 8, 16}) {
    const StepPlan plan = step(scheduler);
    EXPECT_EQ(rows_of(plan), (std::vector<int32_t>{8, 1, 1}));
    EXPECT_EQ(plan.seqs[0].id, id);
    EXPECT_EQ(plan.seqs[0].start_pos, start);
    EXPECT_FALSE(plan.seqs[0].samples);
  }
  const StepPlan last = step(scheduler);
  EXPECT_EQ(rows_of(last), (std::vector<int32_t>{6, 1, 1}));
  EXPECT_TRUE(last.seqs[0].samples);
}

TEST(Scheduler, ChunksAreBoundedAndSoIsTheStep) {
  SchedulerConfig config = config_of(100);
  config.max_prefill_chunk = 12;
  Scheduler scheduler(config);
  for (int32_t i = 0; i < 4; ++i) scheduler.add(spec_of(20, 5, 100 * i));
  EXPECT_EQ(rows_of(step(scheduler)), (std::vector<int32_t>{12, 12, 8}));
  EXPECT_EQ(rows_of(step(scheduler)), (std::vector<int32_t>{8, 8, 12, 4}));
}

TEST(Scheduler, FirstComeFirstServedWithinAPriority) {
  SchedulerConfig config = config_of(100);
  config.max_num_seqs = 2;
  Scheduler scheduler(config);
  SeqSpec low = spec_of(2, 1), high = spec_of(2, 1);
  low.priority = 5;
  high.priority = -5;
  const SeqId a = scheduler.add(low), b = scheduler.add(low), c = scheduler.add(spec_of(2, 1)),
              d = scheduler.add(high);
  EXPECT_EQ(ids_of(step(scheduler)), (Ids{d, c}));
  EXPECT_EQ(ids_of(step(scheduler)), (Ids{a, b}));
  EXPECT_FALSE(scheduler.has_work());
}

TEST(Scheduler, ALargeRequestIsNotOvertakenBySmallOnes) {
  Scheduler scheduler(config_of(10));
  const SeqId first = scheduler.add(spec_of(20, 9));
  step(scheduler);
  const SeqId large = scheduler.add(spec_of(24, 9, 100));
  scheduler.add(spec_of(2, 2, 200));
  EXPECT_EQ(ids_of(step(scheduler)), (Ids{first}));
  EXPECT_EQ(scheduler.stats().waiting, 2);
  scheduler.cancel(first);
  EXPECT_EQ(ids_of(step(scheduler)).front(), large);
}

TEST(Scheduler, AnUrgentRequestTakesThePlaceOfALessUrgentOne) {
  SchedulerConfig config = config_of(100);
  config.max_num_seqs = 2;
  Scheduler scheduler(config);
  SeqSpec lazy = spec_of(8, 20);
  lazy.priority = 1;
  SeqSpec other = spec_of(8, 20, 30);
  other.priority = 1;
  const SeqId a = scheduler.add(lazy), b = scheduler.add(other);
  step(scheduler);
  const SeqId urgent = scheduler.add(spec_of(5, 2, 50));
  const StepPlan plan = step(scheduler);
  EXPECT_EQ(plan.preempted, (Ids{b}));
  EXPECT_EQ(ids_of(plan), (Ids{urgent, a}));
  // One that is no more urgent takes nobody's place.
  const SeqId c = scheduler.add(lazy);
  EXPECT_EQ(ids_of(step(scheduler)), (Ids{urgent, a}));
  EXPECT_EQ(ids_of(step(scheduler)), (Ids{a, b})) << "back in order of arrival";
  scheduler.cancel(a);
  EXPECT_EQ(ids_of(step(scheduler)), (Ids{b, c}));
}

TEST(Scheduler, PrefixesAreSharedByWholeBlocksButNeverAll) {
  struct Case {
    int32_t prompt, expected_hit;
  };
  for (const Case c : {Case{3, 0}, {4, 0}, {5, 4}, {8, 4}, {9, 8}, {12, 8}, {13, 12}, {30, 12}}) {
    Scheduler fresh(config_of(100));
    fresh.add(spec_of(12, 1));
    drain(fresh);
    const SeqId id = fresh.add(spec_of(c.prompt, 2));
    const StepPlan plan = fresh.plan(0);
    EXPECT_EQ(plan.seqs[0].start_pos, c.expected_hit) << c.prompt;
    EXPECT_EQ(plan.seqs[0].num_tokens, c.prompt - c.expected_hit);
    EXPECT_EQ(fresh.cached_prompt_tokens(id), c.expected_hit);
    EXPECT_EQ(fresh.stats().prefix_hit_tokens, static_cast<uint64_t>(c.expected_hit));
    EXPECT_EQ(fresh.stats().prefix_miss_tokens,
              static_cast<uint64_t>(12 + c.prompt - c.expected_hit));
  }
}

TEST(Scheduler, GeneratedTokensAreCachedToo) {
  Scheduler scheduler(config_of(100));
  scheduler.add(spec_of(3, 7));  // 0 1 2 then six computed 7s: two blocks and one token
  drain(scheduler);
  SeqSpec next = spec_of(3, 1);
  next.prompt.insert(next.prompt.end(), 9, 7);
  scheduler.add(next);
  EXPECT_EQ(scheduler.plan(0).seqs[0].start_pos, 8);
}

TEST(Scheduler, NothingIsCachedBeforeItsCommit) {
  Scheduler scheduler(config_of(100));
  scheduler.add(spec_of(9, 3));
  SeqSpec alone = spec_of(9, 3);
  alone.read_prefix_cache = false;  // or it would wait for the blocks of the first
  scheduler.add(alone);
  StepPlan plan = scheduler.plan(0);
  EXPECT_EQ(rows_of(plan), (std::vector<int32_t>{9, 9}));
  scheduler.add(spec_of(9, 3));
  commit(scheduler, plan);
  plan = scheduler.plan(0);
  ASSERT_EQ(rows_of(plan), (std::vector<int32_t>{1, 1, 1}));
  // Those who computed the same blocks share them from now on: two, and one of their own each.
  EXPECT_EQ(scheduler.stats().total_blocks - scheduler.stats().free_blocks, 5);
  EXPECT_TRUE(std::ranges::equal(std::span(plan.seqs[0].tables[0]).first(2),
                                 std::span(plan.seqs[1].tables[0]).first(2)));
  EXPECT_NE(plan.seqs[0].tables[0][2], plan.seqs[1].tables[0][2]);
}

TEST(Scheduler, AnAbandonedStepEndsItsSequencesAndCachesNothing) {
  Scheduler scheduler(config_of(100));
  const SeqId a = scheduler.add(spec_of(9, 3)), b = scheduler.add(spec_of(5, 3, 50));
  EXPECT_EQ(ids_of(scheduler.plan(0)), (Ids{a, b}));
  EXPECT_TRUE(scheduler.cancel(b));
  EXPECT_EQ(scheduler.abandon_step(), (Ids{a, b}));
  EXPECT_FALSE(scheduler.has_work());
  EXPECT_EQ(scheduler.stats().free_blocks, 100);
  EXPECT_EQ(scheduler.stats().cached_blocks, 0);
  scheduler.add(spec_of(9, 3));
  EXPECT_EQ(scheduler.plan(0).seqs[0].start_pos, 0);
}

TEST(Scheduler, PrefixesStayWithinTheirIdentityAndSwitch) {
  const auto start_after = [](SchedulerConfig config, auto&& change) {
    Scheduler scheduler(config);
    scheduler.add(spec_of(12, 1));
    drain(scheduler);
    SeqSpec spec = spec_of(12, 1);
    change(spec);
    scheduler.add(spec);
    return scheduler.plan(0).seqs[0].start_pos;
  };
  const SchedulerConfig on = config_of(100);
  SchedulerConfig off = on;
  off.enable_prefix_caching = false;
  EXPECT_EQ(start_after(on, [](SeqSpec&) {}), 8);
  EXPECT_EQ(start_after(on, [](SeqSpec& s) { s.identity.sequence.adapter = 1; }), 0);
  EXPECT_EQ(start_after(on, [](SeqSpec& s) { s.identity.sequence.rope_len = 12; }), 0);
  EXPECT_EQ(start_after(on, [](SeqSpec& s) { s.read_prefix_cache = false; }), 0);
  EXPECT_EQ(start_after(on, [](SeqSpec& s) { s.wants_all_prompt_logits = true; }), 0);
  EXPECT_EQ(start_after(off, [](SeqSpec&) {}), 0);
}

TEST(Scheduler, ThePrefixCacheCanBeCleared) {
  Scheduler scheduler(config_of(100));
  scheduler.add(spec_of(12, 1));
  drain(scheduler);
  EXPECT_EQ(scheduler.stats().cached_blocks, 3);
  EXPECT_EQ(scheduler.stats().free_blocks, 100);
  scheduler.clear_prefix_cache();
  EXPECT_EQ(scheduler.stats().cached_blocks, 0);
  scheduler.add(spec_of(12, 1));
  EXPECT_EQ(scheduler.plan(0).seqs[0].start_pos, 0);
}

TEST(Scheduler, TheNewestGivesWayAndComesBackWithAllItsTokens) {
  SchedulerConfig config = config_of(6);
  config.enable_prefix_caching = false;
  Scheduler scheduler(config);
  const SeqId old = scheduler.add(spec_of(6, 16)), young = scheduler.add(spec_of(6, 16, 50));
  std::vector<int32_t> young_tokens = {50, 51, 52, 53, 54, 55};
  StepPlan plan;
  for (int32_t token = 900;; ++token) {
    plan = scheduler.plan(0);
    if (!plan.preempted.empty()) break;
    ASSERT_EQ(ids_of(plan), (Ids{old, young}));
    commit(scheduler, plan, token);
    young_tokens.push_back(token);
    ASSERT_LT(token, 920);
  }
  EXPECT_EQ(plan.preempted, (Ids{young}));
  EXPECT_EQ(ids_of(plan), (Ids{old}));
  EXPECT_EQ(scheduler.stats().preemptions, 1u);
  commit(scheduler, plan);
  while (ids_of(plan = scheduler.plan(0)) == Ids{old}) commit(scheduler, plan);
  ASSERT_EQ(ids_of(plan), (Ids{young}));
  EXPECT_TRUE(plan.first_scheduled.empty());
  EXPECT_EQ(plan.seqs[0].start_pos, 0);
  EXPECT_EQ(plan.seqs[0].num_prompt_tokens, 6);
  EXPECT_TRUE(plan.seqs[0].samples);
  EXPECT_TRUE(std::ranges::equal(plan.seqs[0].tokens, young_tokens));
  EXPECT_EQ(scheduler.rope_len(young, 5), 6);
  EXPECT_EQ(scheduler.rope_len(young, 6), 7);
  commit(scheduler, plan);
  drain(scheduler);
  EXPECT_EQ(scheduler.stats().free_blocks, 6);
}

TEST(Scheduler, ThePreemptedFindTheirBlocksAgainIfNobodyNeededThem) {
  SchedulerConfig config = config_of(100);
  config.max_num_seqs = 1;
  Scheduler one_place(config);
  SeqSpec lazy = spec_of(16, 9);
  lazy.priority = 1;
  const SeqId id = one_place.add(lazy);
  step(one_place);
  one_place.add(spec_of(3, 1, 50));
  EXPECT_EQ(step(one_place).preempted, (Ids{id}));
  const StepPlan plan = one_place.plan(0);
  EXPECT_EQ(ids_of(plan), (Ids{id}));
  EXPECT_EQ(plan.seqs[0].start_pos, 16);
  EXPECT_EQ(one_place.cached_prompt_tokens(id), 0) << "the hit of its first admission";
}

TEST(Scheduler, WithoutJuniorsASequenceRestsUntilASeniorNeedsItsBlocks) {
  Scheduler scheduler(config_of(7));
  const SeqId old = scheduler.add(spec_of(4, 20)), young = scheduler.add(spec_of(4, 20, 50));
  StepPlan plan = step(scheduler);
  while (ids_of(plan) == Ids{old, young}) plan = step(scheduler);
  // Three blocks for the young, four for the old: the young one rests and keeps its own.
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(ids_of(plan), (Ids{old}));
    EXPECT_TRUE(plan.preempted.empty());
    EXPECT_EQ(scheduler.stats().running, 2);
    EXPECT_EQ(scheduler.stats().free_blocks, 0);
    plan = step(scheduler);
  }
  EXPECT_EQ(plan.preempted, (Ids{young}));
  drain(scheduler);
  EXPECT_EQ(scheduler.stats().preemptions, 1u);
}

TEST(Scheduler, WhatFitsAloneFinishesAlone) {
  Scheduler scheduler(config_of(5));
  EXPECT_TRUE(scheduler.fits(11, 10));
  EXPECT_FALSE(scheduler.fits(11, 11));
  EXPECT_FALSE(scheduler.fits(INT64_MAX, INT64_MAX));
  EXPECT_FALSE(scheduler.fits(0, 1));
  EXPECT_FALSE(scheduler.fits(INT64_MIN, 1));
  for (int32_t i = 0; i < 6; ++i) scheduler.add(spec_of(11, 10, 100 * i));
  drain(scheduler);
  EXPECT_EQ(scheduler.stats().free_blocks, 5);
}

TEST(Scheduler, SpansStayValidWhateverComesBeforeCommit) {
  Scheduler scheduler(config_of(100));
  for (int32_t i = 0; i < 4; ++i) scheduler.add(spec_of(8, 20, 100 * i));
  const StepPlan plan = scheduler.plan(0);
  std::vector<std::vector<int32_t>> tokens, blocks;
  for (const PlannedSeq& seq : plan.seqs) {
    tokens.emplace_back(seq.tokens.begin(), seq.tokens.end());
    blocks.emplace_back(seq.tables[0].begin(), seq.tables[0].end());
  }
  for (int32_t i = 0; i < 1000; ++i) scheduler.add(spec_of(20, 20, i));
  for (size_t i = 0; i < plan.seqs.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(plan.seqs[i].tokens, tokens[i]));
    EXPECT_TRUE(std::ranges::equal(plan.seqs[i].tables[0], blocks[i]));
  }
  EXPECT_EQ(commit(scheduler, plan).size(), 4u);
}

TEST(Scheduler, CallsOutOfTurnAreCaught) {
  SchedulerConfig config = config_of(10);
  Scheduler scheduler(config);
  EXPECT_TRUE(scheduler.plan(0).empty());
  EXPECT_THROW(scheduler.commit({}), InternalError);
  EXPECT_THROW(scheduler.abandon_step(), InternalError);
  EXPECT_THROW(scheduler.add(spec_of(0, 1)), InternalError);
  EXPECT_THROW(scheduler.add(spec_of(1, -1)), InternalError);
  EXPECT_THROW(scheduler.add(spec_of(100, 1)), InternalError);
  EXPECT_THROW(scheduler.rope_len(1, 0), InternalError);
  const SeqId id = scheduler.add(spec_of(3, 3));
  EXPECT_EQ(scheduler.cached_prompt_tokens(id), 0);
  const StepPlan plan = scheduler.plan(0);
  EXPECT_THROW(scheduler.plan(0), InternalError);
  EXPECT_THROW(scheduler.commit({}), InternalError);
  EXPECT_THROW(scheduler.commit(std::vector<int32_t>{1, 2}), InternalError);
  EXPECT_EQ(commit(scheduler, plan).size(), 1u);
  config.max_num_batched_tokens = 2;
  EXPECT_THROW(Scheduler{config}, InternalError);
}

}  // namespace
}  // namespace headrace
