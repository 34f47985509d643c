// Requests that come together and share a prefix: one computes it, the others wait for its rows.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "sched/scheduler.h"

namespace headrace {
namespace {

using Ids = std::vector<SeqId>;

SchedulerConfig small_config() {
  SchedulerConfig config;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 32;
  config.max_model_len = 200;
  config.block_size = 4;
  config.num_blocks = 100;
  return config;
}

/// `shared` tokens 0, 1, ... and then `own` tokens that only this prompt has.
SeqSpec spec_of(int32_t shared, int32_t own, int32_t mark) {
  SeqSpec spec;
  for (int32_t i = 0; i < shared; ++i) spec.prompt.push_back(i);
  for (int32_t i = 0; i < own; ++i) spec.prompt.push_back(1000 * mark + i);
  spec.max_tokens = 20;
  spec.ahead_from = 0;
  return spec;
}

Ids ids_of(const StepPlan& plan) {
  Ids out;
  for (const PlannedSeq& seq : plan.seqs) out.push_back(seq.id);
  return out;
}

void commit(Scheduler& scheduler, const StepPlan& plan) {
  const auto count = std::ranges::count(plan.seqs, true, &PlannedSeq::samples);
  scheduler.commit(std::vector<int32_t>(static_cast<size_t>(count), 7));
}

Ids step(Scheduler& scheduler) {
  const StepPlan plan = scheduler.plan(0);
  if (!plan.empty()) commit(scheduler, plan);
  return ids_of(plan);
}

TEST(SharedPrefix, IsComputedOnce) {
  Scheduler scheduler(small_config());
  const SeqId a = scheduler.add(spec_of(8, 3, 1));
  const SeqId b = scheduler.add(spec_of(8, 3, 2));
  const SeqId c = scheduler.add(spec_of(6, 3, 3));  // shares one whole block
  EXPECT_EQ(step(scheduler), Ids{a});
  EXPECT_EQ(step(scheduler), (Ids{a, b, c}));
  EXPECT_EQ(scheduler.cached_prompt_tokens(b), 8);
  EXPECT_EQ(scheduler.cached_prompt_tokens(c), 4);
  EXPECT_EQ(scheduler.stats().prefix_hit_tokens, 12u);
}

TEST(SharedPrefix, OfManyChunksIsWaitedForToItsEnd) {
  SchedulerConfig config = small_config();
  config.max_prefill_chunk = 8;
  Scheduler scheduler(config);
  const SeqId a = scheduler.add(spec_of(24, 3, 1));
  const SeqId b = scheduler.add(spec_of(24, 3, 2));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(scheduler), Ids{a});
  EXPECT_EQ(step(scheduler), (Ids{a, b}));
  EXPECT_EQ(scheduler.cached_prompt_tokens(b), 24);
}

TEST(SharedPrefix, ShorterThanABlockHoldsNobodyBack) {
  Scheduler scheduler(small_config());
  const SeqId a = scheduler.add(spec_of(3, 5, 1));
  const SeqId b = scheduler.add(spec_of(3, 5, 2));
  const SeqId c = scheduler.add(spec_of(0, 8, 3));
  EXPECT_EQ(step(scheduler), (Ids{a, b, c}));
}

TEST(SharedPrefix, AnEqualPromptLeavesATokenToCompute) {
  Scheduler scheduler(small_config());
  const SeqId a = scheduler.add(spec_of(4, 0, 1));
  const SeqId b = scheduler.add(spec_of(4, 0, 1));  // its one block holds its last token
  EXPECT_EQ(step(scheduler), (Ids{a, b}));
}

TEST(SharedPrefix, NobodyOvertakesWhoIsHeldBack) {
  Scheduler scheduler(small_config());
  const SeqId a = scheduler.add(spec_of(8, 3, 1));
  const SeqId b = scheduler.add(spec_of(8, 3, 2));
  const SeqId c = scheduler.add(spec_of(0, 8, 3));
  EXPECT_EQ(step(scheduler), Ids{a});
  EXPECT_EQ(step(scheduler), (Ids{a, b, c}));
}

TEST(SharedPrefix, CountsOnlyWhereItCouldBeRead) {
  SchedulerConfig config = small_config();
  config.enable_prefix_caching = false;
  Scheduler without(config);
  EXPECT_EQ(without.add(spec_of(8, 3, 1)), 1u);
  EXPECT_EQ(without.add(spec_of(8, 3, 2)), 2u);
  EXPECT_EQ(step(without), (Ids{1, 2}));

  Scheduler scheduler(small_config());
  const SeqId a = scheduler.add(spec_of(8, 3, 1));
  SeqSpec reads_not = spec_of(8, 3, 2);
  reads_not.read_prefix_cache = false;
  const SeqId b = scheduler.add(reads_not);
  SeqSpec elsewhere = spec_of(8, 3, 3);
  elsewhere.identity.sequence.adapter = 5;
  const SeqId c = scheduler.add(elsewhere);
  EXPECT_EQ(step(scheduler), (Ids{a, b, c}));
}

/// An item at positions [first, last).
MediaItems one_item(uint64_t digest, int32_t first, int32_t last) {
  return std::make_shared<const std::vector<MediaItem>>(
      std::vector<MediaItem>{{{digest, 0, 0, 0}, first, last}});
}

TEST(SharedPrefix, IsWaitedForAsFarAsTheMediaAgree) {
  Scheduler scheduler(small_config());
  SeqSpec spec = spec_of(12, 3, 1);
  spec.identity.media = one_item(1, 6, 9);  // in blocks 1 and 2
  const SeqId a = scheduler.add(spec), same = scheduler.add(spec);
  spec.identity.media = one_item(2, 6, 9);
  const SeqId other = scheduler.add(spec);
  EXPECT_EQ(step(scheduler), Ids{a});
  EXPECT_EQ(step(scheduler), (Ids{a, same, other}));
  EXPECT_EQ(scheduler.cached_prompt_tokens(same), 12);
  EXPECT_EQ(scheduler.cached_prompt_tokens(other), 4);

  // With block 0 known, who has other media in block 1 waits for nobody, who has the same does.
  spec.identity.media = one_item(3, 6, 9);
  const SeqId third = scheduler.add(spec);
  spec.identity.media = one_item(4, 6, 9);
  const SeqId fourth = scheduler.add(spec), fifth = scheduler.add(spec);
  EXPECT_EQ(step(scheduler), (Ids{a, same, other, third, fourth}));
  EXPECT_EQ(step(scheduler), (Ids{a, same, other, third, fourth, fifth}));
  EXPECT_EQ(scheduler.cached_prompt_tokens(fifth), 12);
}

TEST(SharedPrefix, AMoreUrgentRequestWaitsForNobody) {
  SchedulerConfig config = small_config();
  config.max_prefill_chunk = 4;
  Scheduler scheduler(config);
  const SeqId a = scheduler.add(spec_of(16, 3, 1));
  EXPECT_EQ(step(scheduler), Ids{a});
  SeqSpec urgent = spec_of(16, 3, 2);
  urgent.priority = -1;
  const SeqId b = scheduler.add(urgent);
  EXPECT_EQ(step(scheduler), (Ids{b, a}));
}

TEST(SharedPrefix, WhoWaitedForOneThatEndsGoesOnAlone) {
  SchedulerConfig config = small_config();
  config.max_prefill_chunk = 4;
  Scheduler scheduler(config);
  const SeqId a = scheduler.add(spec_of(16, 3, 1));
  const SeqId b = scheduler.add(spec_of(16, 3, 2));
  EXPECT_EQ(step(scheduler), Ids{a});
  const StepPlan plan = scheduler.plan(0);
  EXPECT_EQ(ids_of(plan), Ids{a});
  EXPECT_TRUE(scheduler.cancel(a));
  commit(scheduler, plan);
  EXPECT_EQ(step(scheduler), Ids{b});
  EXPECT_EQ(scheduler.cached_prompt_tokens(b), 4);  // what `a` had committed
}

TEST(SharedPrefix, RowsThatAreInFlightCountInAPlanAhead) {
  Scheduler scheduler(small_config());
  const SeqId a = scheduler.add(spec_of(8, 3, 1));
  const SeqId b = scheduler.add(spec_of(8, 3, 2));
  const StepPlan first = scheduler.plan(0);
  EXPECT_EQ(ids_of(first), Ids{a});
  const StepPlan second = scheduler.plan_ahead(0);
  EXPECT_EQ(ids_of(second), Ids{a});
  commit(scheduler, first);
  const StepPlan third = scheduler.plan_ahead(0);
  EXPECT_EQ(ids_of(third), (Ids{a, b}));
  EXPECT_EQ(scheduler.cached_prompt_tokens(b), 8);
}

}  // namespace
}  // namespace headrace
