// Slots and snapshots of layers with a state.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "headrace/status.h"
#include "sched/scheduler.h"

namespace headrace {
namespace {

using Tokens = std::vector<int32_t>;
using Saves = std::vector<StateSave>;

/// Blocks of 4 tokens, snapshots every 8.
SchedulerConfig small(int32_t num_slots) {
  SchedulerConfig config;
  config.max_num_seqs = 2;
  config.max_num_batched_tokens = 64;
  config.max_model_len = 200;
  config.block_size = 4;
  config.num_blocks = 60;
  config.num_state_slots = num_slots;
  config.snapshot_interval = 8;
  return config;
}

/// `shared` tokens 0, 1, ... and then `own` tokens that only this prompt has.
SeqSpec spec_of(int32_t shared, int32_t own, int32_t max_tokens, int32_t mark = 1) {
  SeqSpec spec;
  for (int32_t i = 0; i < shared; ++i) spec.prompt.push_back(i);
  for (int32_t i = 0; i < own; ++i) spec.prompt.push_back(10000 * mark + i);
  spec.max_tokens = max_tokens;
  spec.ahead_from = 0;
  return spec;
}

Saves saves_of(const PlannedSeq& seq) { return {seq.saves.begin(), seq.saves.end()}; }

std::vector<int32_t> saved_rows(const PlannedSeq& seq) {
  std::vector<int32_t> rows;
  for (const StateSave& save : seq.saves) rows.push_back(save.row);
  return rows;
}

void commit(Scheduler& scheduler, const StepPlan& plan, int32_t token = 7) {
  const auto count = std::ranges::count(plan.seqs, true, &PlannedSeq::samples);
  if (!plan.empty()) scheduler.commit(Tokens(static_cast<size_t>(count), token));
}

/// What the plan's spans have shown is gone then.
StepPlan step(Scheduler& scheduler) {
  StepPlan plan = scheduler.plan(0);
  commit(scheduler, plan);
  return plan;
}

/// Runs a request to its end; where it began.
int32_t run(Scheduler& scheduler, const SeqSpec& spec) {
  scheduler.add(spec);
  const int32_t start = step(scheduler).seqs.at(0).start_pos;
  while (scheduler.has_work()) step(scheduler);
  return start;
}

/// Of real sizes: prompts of 5000 tokens, and of its first 4500.
TEST(SchedulerStates, TheThirdSequenceWithAPrefixBeginsAtItsEnd) {
  SchedulerConfig config = small(16);
  config.max_num_batched_tokens = 1024;
  config.max_model_len = 8192;
  config.block_size = 64;
  config.num_blocks = 400;
  config.snapshot_interval = 2048;
  Scheduler scheduler(config);
  scheduler.add(spec_of(5000, 0, 1));
  const std::vector<int32_t> snapshots = {0, 1, 1, 2, 3};
  int32_t live = kZeroState, before = kZeroState;
  for (int32_t i = 0; i < 5; ++i) {
    const StepPlan plan = scheduler.plan(0);
    const PlannedSeq& seq = plan.seqs.at(0);
    if (i == 0) live = seq.state_out;
    EXPECT_EQ(seq.start_pos, 1024 * i);
    EXPECT_EQ(seq.state_in, before);
    EXPECT_EQ(saved_rows(seq), i < 4 ? Tokens{} : Tokens{4991 - 4096});
    EXPECT_EQ(seq.state_out == live, i % 2 == 0) << "the last rows of others are saved";
    before = seq.state_out;
    commit(scheduler, plan);
    EXPECT_EQ(scheduler.stats().snapshots, snapshots[static_cast<size_t>(i)]);
  }
  EXPECT_FALSE(scheduler.has_work());

  const SeqId second = scheduler.add(spec_of(4500, 0, 1));
  const StepPlan plan = scheduler.plan(0);
  EXPECT_EQ(plan.seqs.at(0).start_pos, 4096);
  EXPECT_EQ(plan.seqs.at(0).tables[0].size(), 71u);
  EXPECT_EQ(saved_rows(plan.seqs.at(0)), Tokens{4480 - 4096 - 1});
  EXPECT_EQ(scheduler.cached_prompt_tokens(second), 4096);
  EXPECT_EQ(scheduler.stats().prefix_hit_tokens, 4096u);
  EXPECT_EQ(scheduler.stats().prefix_found_tokens, 4480u);
  commit(scheduler, plan);
  EXPECT_EQ(run(scheduler, spec_of(4500, 0, 1)), 4480);
  EXPECT_EQ(run(scheduler, spec_of(5000, 300, 1)), 4992) << "the next turn";
}

TEST(SchedulerStates, ABranchIsSavedByTheSecondThatComesPastIt) {
  SchedulerConfig config = small(8);
  config.snapshot_interval = 32;
  Scheduler scheduler(config);
  EXPECT_EQ(run(scheduler, spec_of(10, 10, 1, 1)), 0);
  scheduler.add(spec_of(10, 8, 1, 2));
  const StepPlan plan = scheduler.plan(0);
  EXPECT_EQ(plan.seqs.at(0).start_pos, 0);
  EXPECT_EQ(saved_rows(plan.seqs[0]), (Tokens{7, 15}));
  commit(scheduler, plan);
  EXPECT_EQ(run(scheduler, spec_of(10, 8, 1, 3)), 8);
}

TEST(SchedulerStates, PositionsOfSnapshots) {
  Scheduler scheduler(small(8));
  scheduler.add(spec_of(22, 0, 30));
  EXPECT_EQ(saved_rows(scheduler.plan(0).seqs.at(0)), (Tokens{7, 15, 19}));
  scheduler.commit(Tokens{7});
  EXPECT_EQ(scheduler.stats().snapshots, 3);
  // Of those behind the prompt the last alone stays: 24 tokens, 32, 40.
  for (int32_t i = 0; i < 20; ++i) step(scheduler);
  EXPECT_EQ(scheduler.stats().snapshots, 4);
  EXPECT_EQ(scheduler.stats().snapshots_written, 6u);
  EXPECT_EQ(scheduler.stats().snapshots_evicted, 0u);
}

TEST(SchedulerStates, ALastRowIsSavedByHandingItsSlotOver) {
  Scheduler scheduler(small(8));
  scheduler.add(spec_of(22, 0, 30));
  StepPlan plan = scheduler.plan(0);
  const int32_t live = plan.seqs.at(0).state_out;
  commit(scheduler, plan);
  step(scheduler);
  plan = scheduler.plan(0);  // the row at 23
  const int32_t saved = plan.seqs.at(0).state_out;
  EXPECT_EQ(plan.seqs.at(0).state_in, live);
  EXPECT_NE(saved, live);
  EXPECT_TRUE(plan.seqs.at(0).saves.empty());
  // The next step begins there before the commit, too.
  const StepPlan next = scheduler.plan_ahead(0);
  EXPECT_EQ(next.seqs.at(0).state_in, saved);
  EXPECT_EQ(next.seqs.at(0).state_out, live);
  EXPECT_EQ(scheduler.stats().snapshots, 3) << "not before its block";
  commit(scheduler, plan);
  EXPECT_EQ(scheduler.stats().snapshots, 4);
  commit(scheduler, next);
}

TEST(SchedulerStates, WithoutASnapshotNoBlockIsTaken) {
  SchedulerConfig config = small(2);  // both live: there is no slot for a snapshot
  Scheduler scheduler(config);
  const SeqId a = scheduler.add(spec_of(20, 1, 50));
  const SeqId b = scheduler.add(spec_of(0, 20, 50, 2));
  const StepPlan plan = scheduler.plan(0);
  ASSERT_EQ(plan.seqs.size(), 2u);
  EXPECT_TRUE(plan.seqs[0].saves.empty() && plan.seqs[1].saves.empty());
  commit(scheduler, plan);
  scheduler.cancel(a);
  scheduler.add(spec_of(20, 2, 1));
  const StepPlan next = scheduler.plan(0);
  ASSERT_EQ(next.seqs.size(), 2u);
  EXPECT_EQ(next.seqs[1].start_pos, 0);
  EXPECT_EQ(next.seqs[1].state_in, kZeroState);
  EXPECT_EQ(scheduler.stats().prefix_found_tokens, 20u);
  commit(scheduler, next);
  scheduler.cancel(b);
}

TEST(SchedulerStates, TheOnlySlotIsTakenOver) {
  SchedulerConfig config = small(2);
  config.max_num_seqs = 1;
  Scheduler scheduler(config);
  EXPECT_EQ(run(scheduler, spec_of(6, 0, 1)), 0);
  EXPECT_EQ(scheduler.stats().snapshots, 1);
  Scheduler tight([&] {
    config.num_state_slots = 1;
    return config;
  }());
  EXPECT_EQ(run(tight, spec_of(6, 0, 1)), 0);
  EXPECT_EQ(tight.stats().snapshots, 0) << "the live slot is the only one";
  // With two slots, a snapshot and a live one, the one that continues it finds another slot free.
  scheduler.add(spec_of(6, 6, 30));
  const StepPlan plan = scheduler.plan(0);
  EXPECT_NE(plan.seqs.at(0).state_in, plan.seqs.at(0).state_out);
  commit(scheduler, plan);
}

TEST(SchedulerStates, ANewcomerNeedsASlot) {
  SchedulerConfig config = small(2);
  Scheduler scheduler(config);
  scheduler.add(spec_of(7, 0, 50));
  // At 8 tokens the state goes to the other slot, and is held until the next rows are planned.
  step(scheduler);
  step(scheduler);
  EXPECT_EQ(scheduler.stats().free_state_slots, 0);
  const SeqId late = scheduler.add(spec_of(0, 5, 5, 2));
  EXPECT_EQ(step(scheduler).seqs.size(), 1u);
  const StepPlan plan = scheduler.plan(0);
  ASSERT_EQ(plan.seqs.size(), 2u);
  EXPECT_EQ(plan.seqs[1].id, late);
  EXPECT_EQ(scheduler.stats().snapshots, 0) << "it has been evicted";
  EXPECT_EQ(scheduler.stats().snapshots_evicted, 2u) << "so had that at 4 tokens, for it";
  commit(scheduler, plan);
}

TEST(SchedulerStates, AnUrgentNewcomerTakesAJuniorsSlot) {
  Scheduler scheduler(small(2));
  const SeqId first = scheduler.add(spec_of(9, 0, 50));
  const SeqId second = scheduler.add(spec_of(0, 9, 50, 2));
  step(scheduler);
  SeqSpec urgent = spec_of(0, 9, 5, 3);
  urgent.priority = -1;
  const SeqId third = scheduler.add(urgent);
  const StepPlan plan = scheduler.plan(0);
  EXPECT_EQ(plan.preempted, std::vector<SeqId>{second});
  ASSERT_EQ(plan.seqs.size(), 2u);
  EXPECT_EQ(plan.seqs[0].id, third);
  EXPECT_EQ(plan.seqs[1].id, first);
  commit(scheduler, plan);
}

TEST(SchedulerStates, APreemptedSequenceReturnsToItsLastSnapshot) {
  SchedulerConfig config = small(6);
  config.max_num_seqs = 1;
  Scheduler scheduler(config);
  const SeqId lazy = scheduler.add(spec_of(10, 0, 50));
  for (int32_t i = 0; i < 9; ++i) step(scheduler);  // 18 tokens are computed
  SeqSpec urgent = spec_of(0, 9, 1, 3);
  urgent.priority = -1;
  scheduler.add(urgent);
  EXPECT_EQ(step(scheduler).preempted, std::vector<SeqId>{lazy});
  const StepPlan plan = scheduler.plan(0);
  ASSERT_EQ(plan.seqs.at(0).id, lazy);
  EXPECT_EQ(plan.seqs.at(0).start_pos, 16);
  EXPECT_EQ(plan.seqs.at(0).num_tokens, 3);
  commit(scheduler, plan);
}

/// The second is admitted while the first is computed, a block a step.
TEST(SchedulerStates, WhoSharesAPrefixWaitsForItsSnapshots) {
  for (const int32_t shared : {3, 4, 5, 7, 8, 9, 15, 16, 17, 19, 20, 21}) {
    SCOPED_TRACE(shared);
    SchedulerConfig config = small(8);
    config.max_prefill_chunk = 4;
    Scheduler scheduler(config);
    scheduler.add(spec_of(22, 0, 30));  // saves behind 8, 16 and 20 tokens
    step(scheduler);
    const SeqId second = scheduler.add(spec_of(shared, 6, 5, 2));
    const int32_t start = shared >= 20 ? 20 : shared / 8 * 8;
    int32_t steps = 1;
    StepPlan plan = scheduler.plan(0);
    for (; plan.seqs.size() == 1; ++steps) {
      commit(scheduler, plan);
      plan = scheduler.plan(0);
    }
    ASSERT_EQ(plan.seqs.at(1).id, second);
    EXPECT_EQ(plan.seqs[1].start_pos, start);
    EXPECT_EQ(steps, std::max(1, start / 4));
    commit(scheduler, plan);
  }
}

/// Whether the second enters while the first computes its prompt, a block a step.
bool enters_beside(Scheduler& scheduler, const SeqSpec& first, const SeqSpec& second) {
  scheduler.add(first);
  step(scheduler);
  scheduler.add(second);
  return step(scheduler).seqs.size() == 2;
}

TEST(SchedulerStates, NobodyWaitsForWhoIsFartherBehind) {
  SchedulerConfig config = small(8);
  config.max_prefill_chunk = 4;
  Scheduler scheduler(config);
  run(scheduler, spec_of(22, 0, 1));
  SeqSpec first = spec_of(30, 0, 5);
  first.read_prefix_cache = false;  // it begins at 0, and the second at 20
  EXPECT_TRUE(enters_beside(scheduler, first, spec_of(30, 6, 5)));
}

TEST(SchedulerStates, NobodyWaitsForOtherMedia) {
  for (const uint64_t digest : {0u, 1u, 2u}) {
    SCOPED_TRACE(digest);
    SchedulerConfig config = small(8);
    config.max_prefill_chunk = 4;
    Scheduler scheduler(config);
    const auto with_item = [](uint64_t number) {
      SeqSpec spec = spec_of(22, 0, 5);
      const MediaItem item = {{0, 0, 0, number}, 5, 7};
      const size_t count = number > 0;
      spec.identity.media = std::make_shared<const std::vector<MediaItem>>(count, item);
      return spec;
    };
    EXPECT_EQ(enters_beside(scheduler, with_item(1), with_item(digest)), digest != 1);
  }
}

TEST(SchedulerStates, GuessesHaveASlotEach) {
  SchedulerConfig config = small(8);
  config.snapshot_interval = 32;
  Scheduler scheduler(config);
  const SeqId id = scheduler.add(spec_of(5, 0, 50));
  step(scheduler);
  scheduler.wish_drafts(id, 3);
  StepPlan plan = scheduler.plan(0);
  const int32_t live = plan.seqs.at(0).state_in;
  EXPECT_EQ(plan.seqs[0].state_out, live);
  EXPECT_EQ(saved_rows(plan.seqs[0]), (Tokens{0, 1, 2}));
  const Saves saves = saves_of(plan.seqs[0]);
  scheduler.commit(Tokens{1, 2, 3}, Tokens{3});
  const int32_t free_slots = scheduler.stats().free_state_slots;
  EXPECT_EQ(free_slots, 6) << "all but a snapshot and one live slot";
  plan = scheduler.plan(0);
  EXPECT_EQ(plan.seqs.at(0).state_in, saves[2].slot);
  scheduler.commit(Tokens{1, 2, 3, 4}, Tokens{4});
  plan = scheduler.plan(0);
  EXPECT_EQ(plan.seqs.at(0).state_in, saves[2].slot) << "all were right: it stays where it was";
  commit(scheduler, plan);
}

TEST(SchedulerStates, FewSlotsAreFewGuesses) {
  SchedulerConfig config = small(4);
  config.enable_prefix_caching = false;
  Scheduler scheduler(config);
  const SeqId first = scheduler.add(spec_of(5, 0, 50));
  const SeqId second = scheduler.add(spec_of(0, 5, 50, 2));
  StepPlan plan = scheduler.plan(0);
  EXPECT_TRUE(plan.seqs.at(0).saves.empty() && plan.seqs.at(1).saves.empty());
  commit(scheduler, plan);
  scheduler.wish_drafts(first, 1);
  scheduler.wish_drafts(second, 3);
  plan = scheduler.plan(0);
  EXPECT_EQ(plan.seqs.at(0).num_drafts, 1);
  EXPECT_EQ(plan.seqs.at(1).num_drafts, 1);
  commit(scheduler, plan);
  EXPECT_EQ(scheduler.stats().free_state_slots, 2);
}

/// The state is the snapshot, and the next rows begin with it.
TEST(SchedulerStates, GuessesMayEndAtASnapshot) {
  for (const int32_t right : {0, 1, 2}) {
    SCOPED_TRACE(right);
    Scheduler scheduler(small(8));
    const SeqId id = scheduler.add(spec_of(7 - right, 0, 50));
    step(scheduler);
    scheduler.wish_drafts(id, 2);
    StepPlan plan = scheduler.plan(0);
    const PlannedSeq& seq = plan.seqs.at(0);
    ASSERT_EQ(seq.num_drafts, 2);
    const int32_t slot = right < 2 ? seq.saves[static_cast<size_t>(right)].slot : seq.state_out;
    EXPECT_EQ(scheduler.stats().snapshots, 1);
    scheduler.commit(Tokens(static_cast<size_t>(right) + 1, 7), Tokens{right + 1});
    EXPECT_EQ(scheduler.stats().snapshots, 2) << "behind 4 tokens, and behind 8";
    EXPECT_EQ(scheduler.stats().free_state_slots, 5);
    plan = scheduler.plan(0);
    EXPECT_EQ(plan.seqs.at(0).state_in, slot);
    EXPECT_NE(plan.seqs[0].state_out, slot);
    commit(scheduler, plan);
  }
}

TEST(SchedulerStates, WhatAPlanAheadReadsAndWritesIsNotInItsWay) {
  SchedulerConfig config = small(3);
  Scheduler scheduler(config);
  scheduler.add(spec_of(20, 0, 10));
  const StepPlan plan = scheduler.plan(0);
  ASSERT_EQ(plan.seqs.at(0).saves.size(), 2u) << "the last ones";
  EXPECT_EQ(saved_rows(plan.seqs[0]), (Tokens{7, 15}));
  scheduler.add(spec_of(0, 9, 10, 2));
  const StepPlan ahead = scheduler.plan_ahead(0);
  ASSERT_EQ(ahead.seqs.size(), 1u) << "no slot is left before the commit";
  commit(scheduler, plan);
  EXPECT_EQ(scheduler.stats().snapshots, 2);
  commit(scheduler, ahead);
  EXPECT_EQ(step(scheduler).seqs.size(), 2u);
  EXPECT_EQ(scheduler.stats().snapshots, 1) << "the first one was only passed by";
}

TEST(SchedulerStates, AnAbandonedStepPublishesNothing) {
  Scheduler scheduler(small(8));
  run(scheduler, spec_of(10, 0, 1));
  EXPECT_EQ(scheduler.stats().snapshots, 1);
  scheduler.add(spec_of(10, 12, 5, 2));
  ASSERT_FALSE(scheduler.plan(0).seqs.at(0).saves.empty());
  scheduler.abandon_step();
  EXPECT_EQ(scheduler.stats().snapshots, 1);
  EXPECT_EQ(scheduler.stats().free_state_slots, 7);
}

TEST(SchedulerStates, ClearingTheCacheLeavesWhatIsAboutToBeBegunWith) {
  Scheduler scheduler(small(8));
  scheduler.add(spec_of(22, 0, 30));
  for (int32_t i = 0; i < 3; ++i) step(scheduler);  // 24 tokens are computed
  EXPECT_EQ(scheduler.stats().snapshots, 4);
  scheduler.clear_prefix_cache();
  EXPECT_EQ(scheduler.stats().snapshots, 1);
  step(scheduler);
  scheduler.clear_prefix_cache();
  EXPECT_EQ(scheduler.stats().free_state_slots, 7);
}

TEST(SchedulerStates, SnapshotsMoveToHostSlotsAndBack) {
  SchedulerConfig config = small(2);
  config.max_num_seqs = 1;
  config.num_host_state_slots = 4;
  Scheduler scheduler(config);
  run(scheduler, spec_of(10, 0, 1));
  scheduler.add(spec_of(0, 10, 1, 2));
  StepPlan plan = scheduler.plan(0);  // live slot: the free one; its save evicts
  const int32_t slot = plan.seqs.at(0).saves[0].slot;
  ASSERT_EQ(plan.copies.size(), 1u);
  EXPECT_TRUE(plan.copies[0].is_state && plan.copies[0].to_host);
  EXPECT_EQ(plan.copies[0].block, slot);
  commit(scheduler, plan);
  EXPECT_EQ(scheduler.stats().host_snapshots, 1);
  scheduler.add(spec_of(10, 0, 1));
  plan = scheduler.plan(0);
  EXPECT_EQ(plan.seqs.at(0).start_pos, 8);
  EXPECT_EQ(plan.seqs[0].state_in, plan.seqs[0].state_out);
  ASSERT_GE(plan.copies.size(), 1u);
  EXPECT_TRUE(plan.copies[0].is_state && !plan.copies[0].to_host);
  EXPECT_EQ(plan.copies[0].block, plan.seqs[0].state_in);
  EXPECT_EQ(scheduler.stats().snapshots_restored, 1u);
  commit(scheduler, plan);
}

TEST(SchedulerStates, CallsThatDontFit) {
  EXPECT_THROW(Scheduler{small(1)}, InternalError) << "a slot for each sequence";
  SchedulerConfig config = small(4);
  config.snapshot_interval = 6;
  EXPECT_THROW(Scheduler{config}, InternalError) << "within a block";
  Scheduler scheduler(small(4));
  const SeqId id = scheduler.add(spec_of(5, 0, 9));
  const StepPlan plan = scheduler.plan(0);
  EXPECT_THROW(scheduler.postpone(id), InternalError);
  commit(scheduler, plan);
}

}  // namespace
}  // namespace headrace
