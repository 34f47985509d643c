// Planning ahead of a commit.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "sched/scheduler.h"

namespace headrace {
namespace {

using Ids = std::vector<SeqId>;
using Tokens = std::vector<int32_t>;

SchedulerConfig config_of(int32_t blocks = 100, int32_t seqs = 4) {
  SchedulerConfig config;
  config.max_num_seqs = seqs;
  config.max_num_batched_tokens = 16;
  config.block_size = 4;
  config.max_model_len = 100;
  config.num_blocks = blocks;
  return config;
}

SeqSpec spec_of(int32_t prompt, int32_t max_tokens, int32_t first = 0) {
  SeqSpec spec;
  spec.prompt.resize(static_cast<size_t>(prompt));
  std::iota(spec.prompt.begin(), spec.prompt.end(), first);
  spec.max_tokens = max_tokens;
  spec.ahead_from = 0;
  return spec;
}

Ids ids_of(const StepPlan& plan) {
  Ids out;
  for (const PlannedSeq& seq : plan.seqs) out.push_back(seq.id);
  return out;
}

TEST(PlanAhead, ADecodeTakesTheTokenThatIsBeingDrawn) {
  Scheduler scheduler(config_of());
  const SeqId a = scheduler.add(spec_of(3, 9)), b = scheduler.add(spec_of(4, 9, 50));
  scheduler.plan(0);
  const StepPlan ahead = scheduler.plan_ahead(0);
  ASSERT_EQ(ids_of(ahead), (Ids{a, b}));
  EXPECT_EQ(ahead.seqs[1].drawn_by, 1);
  EXPECT_TRUE(ahead.seqs[1].samples && ahead.seqs[1].tokens.empty());
  EXPECT_EQ(ahead.seqs[1].start_pos, 4);
  EXPECT_EQ(ahead.seqs[1].tables[0].size(), 2u);
  EXPECT_EQ(scheduler.commit(Tokens{5, 6})[1].token, 6);
  EXPECT_EQ(scheduler.commit(Tokens{7, 8})[1].token, 8);
  const StepPlan next = scheduler.plan(0);
  EXPECT_EQ(next.seqs[1].start_pos, 5);
  EXPECT_EQ(next.seqs[1].drawn_by, -1);
  EXPECT_TRUE(std::ranges::equal(next.seqs[1].tokens, Tokens{8}));
}

TEST(PlanAhead, PromptsGoOnAndNewcomersEnter) {
  Scheduler scheduler(config_of());
  const SeqId a = scheduler.add(spec_of(30, 9));
  EXPECT_EQ(scheduler.plan(0).seqs[0].num_tokens, 16);
  const SeqId b = scheduler.add(spec_of(2, 9, 50));
  const StepPlan ahead = scheduler.plan_ahead(0);
  ASSERT_EQ(ids_of(ahead), (Ids{a, b}));
  EXPECT_EQ(ahead.seqs[0].start_pos, 16);
  EXPECT_EQ(ahead.seqs[0].num_tokens, 14);
  EXPECT_TRUE(ahead.seqs[0].samples);
  EXPECT_EQ(ahead.seqs[0].tokens.front(), 16);
  EXPECT_EQ(ahead.first_scheduled, (Ids{b}));
}

TEST(PlanAhead, WhoIsKnownToEndIsNotPlanned) {
  Scheduler scheduler(config_of());
  scheduler.add(spec_of(3, 1));
  const SeqId b = scheduler.add(spec_of(3, 2));
  scheduler.plan(0);
  const StepPlan ahead = scheduler.plan_ahead(0);
  EXPECT_EQ(ids_of(ahead), (Ids{b}));
  EXPECT_EQ(ahead.seqs[0].drawn_by, 1);
  EXPECT_EQ(scheduler.commit(Tokens{5, 6})[0].end, SeqEnd::kLength);
  EXPECT_TRUE(scheduler.plan_ahead(0).empty()) << "all of them end";
  EXPECT_EQ(scheduler.commit(Tokens{7})[0].end, SeqEnd::kLength);
  EXPECT_EQ(scheduler.stats().free_blocks, 100);
}

TEST(PlanAhead, WhoEndsMeanwhileLeavesAtOnceAndItsNextTokenIsDropped) {
  Scheduler scheduler(config_of());
  SeqSpec spec = spec_of(3, 9);
  spec.end_tokens = {5};
  const SeqId a = scheduler.add(spec), b = scheduler.add(spec_of(3, 9, 50));
  scheduler.plan(0);
  EXPECT_EQ(scheduler.plan_ahead(0).seqs.size(), 2u);
  EXPECT_EQ(scheduler.commit(Tokens{5, 6})[0].end, SeqEnd::kStopToken);
  EXPECT_EQ(scheduler.stats().running, 1);
  EXPECT_EQ(scheduler.stats().free_blocks, 99);
  EXPECT_TRUE(scheduler.cancel(b));
  EXPECT_EQ(scheduler.stats().free_blocks, 100);
  const auto committed = scheduler.commit(Tokens{7, 8});
  ASSERT_EQ(committed.size(), 2u);
  EXPECT_EQ(committed[0].id, a);
  for (const CommittedSeq& seq : committed) {
    EXPECT_EQ(seq.end, SeqEnd::kCancelled);
    EXPECT_EQ(seq.num_tokens, 0);
  }
  EXPECT_FALSE(scheduler.has_work());
}

TEST(PlanAhead, GivesUpWhereSomebodyNeedsTheCommit) {
  for (const bool waits : {false, true}) {
    Scheduler scheduler(config_of());
    SeqSpec guided = spec_of(3, 9, 50);
    guided.ahead_from = kNeverAhead;
    scheduler.add(spec_of(3, 9));
    if (!waits) scheduler.add(guided);
    scheduler.plan(0);
    if (waits) scheduler.add(guided);
    EXPECT_TRUE(scheduler.plan_ahead(0).empty());
    scheduler.commit(waits ? Tokens{5} : Tokens{5, 6});
    EXPECT_EQ(scheduler.plan(0).seqs.size(), 2u);
  }
}

TEST(PlanAhead, WhoFindsNoRoomStopsNobody) {
  Scheduler scheduler(config_of(2));
  const SeqId a = scheduler.add(spec_of(3, 5));
  scheduler.plan(0);
  SeqSpec never = spec_of(3, 5, 50);
  never.ahead_from = kNeverAhead;
  scheduler.add(never);
  EXPECT_EQ(ids_of(scheduler.plan_ahead(0)), Ids{a});
}

TEST(PlanAhead, WhoIsPostponedRestsAndGetsTheSameRowAgain) {
  Scheduler scheduler(config_of());
  const SeqId a = scheduler.add(spec_of(3, 9)), b = scheduler.add(spec_of(3, 9, 50));
  scheduler.plan(0);
  scheduler.commit(Tokens{5, 6});
  scheduler.plan(0);
  scheduler.postpone(b);
  StepPlan ahead = scheduler.plan_ahead(0);
  ASSERT_EQ(ahead.seqs.size(), 1u);
  EXPECT_EQ(ahead.seqs[0].id, a);
  EXPECT_EQ(ahead.seqs[0].drawn_by, 0);
  EXPECT_THROW(scheduler.postpone(a), InternalError) << "something is planned ahead";
  const std::vector<CommittedSeq> committed = scheduler.commit(Tokens{7, 8});
  ASSERT_EQ(committed.size(), 2u);
  EXPECT_EQ(committed[0].num_tokens, 1);
  EXPECT_EQ(committed[1].num_tokens, 0);
  EXPECT_EQ(committed[1].end, SeqEnd::kNone);
  scheduler.resume(b);
  ahead = scheduler.plan_ahead(0);
  ASSERT_EQ(ahead.seqs.size(), 2u);
  EXPECT_EQ(ahead.seqs[1].start_pos, 3);
  EXPECT_EQ(ahead.seqs[1].drawn_by, -1);
  EXPECT_EQ(ahead.seqs[1].tokens.front(), 6);
  scheduler.commit(Tokens{9});
  EXPECT_EQ(scheduler.commit(Tokens{10, 11})[1].token, 11);
  EXPECT_EQ(scheduler.plan(0).seqs[1].start_pos, 4);
}

// A prompt's last chunk of several rows: all but the last are computed.
TEST(PlanAhead, WhoIsPostponedKeepsTheRowsBefore) {
  Scheduler scheduler(config_of());
  const SeqId a = scheduler.add(spec_of(12, 9));
  ASSERT_EQ(scheduler.plan(0).seqs.front().num_tokens, 12);
  scheduler.postpone(a);
  EXPECT_THROW(scheduler.postpone(a), InternalError);
  scheduler.commit(Tokens{5});
  EXPECT_TRUE(scheduler.plan(0).empty());
  EXPECT_EQ(scheduler.next_position(a), 11);
  scheduler.resume(a);
  const StepPlan plan = scheduler.plan(0);
  EXPECT_EQ(plan.seqs.front().start_pos, 11);
  EXPECT_TRUE(plan.seqs.front().samples);
  scheduler.postpone(a);
  scheduler.cancel(a);
  EXPECT_EQ(scheduler.commit(Tokens{5}).front().end, SeqEnd::kCancelled);
  EXPECT_FALSE(scheduler.has_work());
}

TEST(PlanAhead, GivesUpWhereSomebodyWantsGuesses) {
  Scheduler scheduler(config_of());
  const SeqId a = scheduler.add(spec_of(3, 9));
  scheduler.plan(0);
  scheduler.wish_drafts(a, 2);
  EXPECT_TRUE(scheduler.plan_ahead(0).empty());
  scheduler.commit(Tokens{5});
  EXPECT_EQ(scheduler.plan(0).seqs[0].num_drafts, 2);
  scheduler.wish_drafts(a, 0);
  EXPECT_TRUE(scheduler.plan_ahead(0).empty()) << "how many tokens it gets is not known";
}

TEST(PlanAhead, TakesNothingFromAnybody) {
  Scheduler scheduler(config_of(4, 2));
  const SeqId a = scheduler.add(spec_of(4, 8)), b = scheduler.add(spec_of(4, 8, 50));
  EXPECT_EQ(ids_of(scheduler.plan(0)), (Ids{a, b}));
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(ids_of(scheduler.plan_ahead(0)), (Ids{a, b}));
    scheduler.commit(Tokens{5, 6});
  }
  EXPECT_TRUE(scheduler.plan_ahead(0).empty()) << "b has to give way";
  EXPECT_EQ(scheduler.stats().preemptions, 0u);
  scheduler.commit(Tokens{5, 6});
  const StepPlan plan = scheduler.plan(0);
  EXPECT_EQ(plan.preempted, (Ids{b}));
  SeqSpec urgent = spec_of(4, 2, 70);
  urgent.priority = -1;
  scheduler.add(urgent);
  EXPECT_TRUE(scheduler.plan_ahead(0).empty()) << "it takes blocks of a";
}

TEST(PlanAhead, DeadlinesEndWhoIsPlanned) {
  Scheduler scheduler(config_of());
  SeqSpec spec = spec_of(3, 9);
  spec.deadline = 5;
  const SeqId a = scheduler.add(spec);
  scheduler.plan(1);
  const StepPlan ahead = scheduler.plan_ahead(6);
  EXPECT_TRUE(ahead.empty());
  EXPECT_EQ(ahead.expired, (Ids{a}));
  EXPECT_EQ(scheduler.commit(Tokens{5})[0].end, SeqEnd::kCancelled);
}

TEST(PlanAhead, AnAbandonedStepEndsThoseAheadToo) {
  Scheduler scheduler(config_of());
  const SeqId a = scheduler.add(spec_of(9, 9));
  scheduler.plan(0);
  const SeqId b = scheduler.add(spec_of(3, 9, 50));
  scheduler.plan_ahead(0);
  EXPECT_EQ(scheduler.abandon_step(), (Ids{a, b}));
  EXPECT_FALSE(scheduler.has_work());
  EXPECT_EQ(scheduler.stats().cached_blocks, 0);
  EXPECT_THROW(scheduler.plan_ahead(0), InternalError);
}

TEST(PlanAhead, CallsOutOfTurnAreCaught) {
  Scheduler scheduler(config_of());
  EXPECT_THROW(scheduler.plan_ahead(0), InternalError);
  scheduler.add(spec_of(3, 9));
  scheduler.plan(0);
  EXPECT_FALSE(scheduler.plan_ahead(0).empty());
  EXPECT_THROW(scheduler.plan_ahead(0), InternalError);
  EXPECT_THROW(scheduler.plan(0), InternalError);
  scheduler.commit(Tokens{1});
  EXPECT_THROW(scheduler.plan(0), InternalError) << "what was ahead is pending";
}

}  // namespace
}  // namespace headrace
