// How a sequence ends: stop tokens and sequences, length, cancellation, deadlines.

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "headrace/status.h"
#include "sched/scheduler.h"

namespace headrace {
namespace {

using Ids = std::vector<SeqId>;

SchedulerConfig config_of() {
  SchedulerConfig config;
  config.max_num_seqs = 2;
  config.max_num_batched_tokens = 8;
  config.max_model_len = 100;
  config.block_size = 4;
  config.num_blocks = 50;
  return config;
}

SeqSpec spec_of(int32_t prompt, int32_t max_tokens) {
  SeqSpec spec;
  spec.prompt.assign(static_cast<size_t>(prompt), 1);
  spec.max_tokens = max_tokens;
  return spec;
}

struct Ended {
  size_t tokens;
  SeqEnd end;
  int32_t stop_sequence = -1;
  bool operator==(const Ended&) const = default;
};

void PrintTo(const Ended& ended, std::ostream* out) {
  *out << ended.tokens << " tokens, end " << static_cast<int>(ended.end) << ", stop sequence "
       << ended.stop_sequence;
}

/// Feeds `output` to a lone sequence until it ends.
Ended feed(const SeqSpec& spec, const std::vector<int32_t>& output) {
  Scheduler scheduler(config_of());
  const SeqId id = scheduler.add(spec);
  for (size_t i = 0; i < output.size();) {
    const StepPlan plan = scheduler.plan(0);
    const bool samples = plan.seqs.at(0).samples;
    const auto committed =
        scheduler.commit(std::span(output).subspan(i, static_cast<size_t>(samples)));
    EXPECT_EQ(committed.at(0).id, id);
    EXPECT_EQ(committed[0].token.has_value(), samples);
    i += samples;
    if (samples) {
      EXPECT_EQ(*committed[0].token, output[i - 1]);
    }
    if (committed[0].end != SeqEnd::kNone) {
      EXPECT_FALSE(scheduler.has_work());
      EXPECT_EQ(scheduler.stats().free_blocks, 50);
      return {i, committed[0].end, committed[0].stop_sequence};
    }
  }
  EXPECT_TRUE(scheduler.has_work());
  return {output.size(), SeqEnd::kNone};
}

TEST(SequenceEnd, StopsAtATokenASequenceOrTheLength) {
  SeqSpec spec = spec_of(3, 5);
  EXPECT_EQ(feed(spec, {9, 9, 9, 9, 9, 9}), (Ended{5, SeqEnd::kLength}));
  spec.end_tokens = {3, 6, 8};
  EXPECT_EQ(feed(spec, {9, 6, 9}), (Ended{2, SeqEnd::kStopToken}));
  EXPECT_EQ(feed(spec, {8}), (Ended{1, SeqEnd::kStopToken}));
  EXPECT_EQ(feed(spec, {9, 9, 9, 9, 3}), (Ended{5, SeqEnd::kStopToken})) << "not the length";
  EXPECT_EQ(feed(spec, {9, 7, 5}), (Ended{3, SeqEnd::kNone}));
  spec.stop_sequences = {{4, 5}, {2, 2, 2}};
  EXPECT_EQ(feed(spec, {4, 4, 5, 9}), (Ended{3, SeqEnd::kStopSequence, 0}));
  EXPECT_EQ(feed(spec, {2, 2, 1, 2, 9}), (Ended{5, SeqEnd::kLength}));
  EXPECT_EQ(feed(spec, {1, 2, 2, 2}), (Ended{4, SeqEnd::kStopSequence, 1}));
  spec.stop_sequences = {{7}, {4, 5}, {5}};
  EXPECT_EQ(feed(spec, {4, 5}), (Ended{2, SeqEnd::kStopSequence, 1})) << "the first of two";
  EXPECT_EQ(feed(spec_of(20, 1), {1}), (Ended{1, SeqEnd::kLength})) << "after three chunks";
}

TEST(SequenceEnd, AStopSequenceLiesInTheOutputAlone) {
  SeqSpec spec = spec_of(3, 9);  // the prompt is 1 1 1
  spec.stop_sequences = {{1, 1}};
  EXPECT_EQ(feed(spec, {1, 2, 1, 1}), (Ended{4, SeqEnd::kStopSequence, 0}));
}

TEST(SequenceEnd, AStopSequenceMayLieAnywhere) {
  SeqSpec spec = spec_of(3, 9);  // the prompt is 1 1 1
  spec.stop_sequences_anywhere = true;
  spec.stop_sequences = {{1, 1, 2}};
  EXPECT_EQ(feed(spec, {2, 3}), (Ended{1, SeqEnd::kStopSequence, 0})) << "begun in the prompt";
  spec.stop_sequences = {{1, 1}};
  EXPECT_EQ(feed(spec, {2, 1, 1}), (Ended{3, SeqEnd::kStopSequence, 0}))
      << "not by the prompt alone";
  spec.stop_sequences = {{1, 1, 1, 1, 2}};
  EXPECT_EQ(feed(spec, {2, 3}), (Ended{2, SeqEnd::kNone})) << "longer than all there is";
  spec.min_tokens = 4;
  spec.end_tokens = {5};
  spec.stop_sequences = {{7, 8}};
  EXPECT_EQ(feed(spec, {5, 7, 8}), (Ended{3, SeqEnd::kStopSequence, 0})) << "before min_tokens";
  EXPECT_EQ(feed(spec, {5, 5, 5, 5}), (Ended{4, SeqEnd::kStopToken}));
}

TEST(SequenceEnd, NothingButLengthBeforeMinTokens) {
  SeqSpec spec = spec_of(3, 6);
  spec.min_tokens = 3;
  spec.end_tokens = {5};
  spec.stop_sequences = {{7, 8}};
  EXPECT_EQ(feed(spec, {7, 8, 5}), (Ended{3, SeqEnd::kStopToken}));
  EXPECT_EQ(feed(spec, {5, 5, 9, 5}), (Ended{4, SeqEnd::kStopToken}));
  EXPECT_EQ(feed(spec, {9, 7, 8}), (Ended{3, SeqEnd::kStopSequence, 0})) << "begun before";
  spec.min_tokens = 6;
  EXPECT_EQ(feed(spec, {5, 7, 8, 5, 5, 9}), (Ended{6, SeqEnd::kLength}));
}

TEST(SequenceEnd, CancelledWhileWaiting) {
  Scheduler scheduler(config_of());
  const SeqId id = scheduler.add(spec_of(3, 3));
  EXPECT_TRUE(scheduler.cancel(id));
  EXPECT_FALSE(scheduler.cancel(id));
  EXPECT_FALSE(scheduler.cancel(12345));
  EXPECT_FALSE(scheduler.has_work());
  EXPECT_TRUE(scheduler.plan(0).empty());
}

TEST(SequenceEnd, CancelledBetweenSteps) {
  Scheduler scheduler(config_of());
  const SeqId id = scheduler.add(spec_of(3, 3)), other = scheduler.add(spec_of(3, 3));
  scheduler.plan(0);
  scheduler.commit(std::vector<int32_t>{5, 5});
  EXPECT_TRUE(scheduler.cancel(id));
  EXPECT_EQ(scheduler.stats().total_blocks - scheduler.stats().free_blocks, 1);
  const StepPlan plan = scheduler.plan(0);
  ASSERT_EQ(plan.seqs.size(), 1u);
  EXPECT_EQ(plan.seqs[0].id, other);
}

TEST(SequenceEnd, CancelledWhilePlanned) {
  Scheduler scheduler(config_of());
  const SeqId id = scheduler.add(spec_of(4, 3)), other = scheduler.add(spec_of(4, 3));
  scheduler.plan(0);
  EXPECT_TRUE(scheduler.cancel(id));
  EXPECT_FALSE(scheduler.cancel(id));
  EXPECT_EQ(scheduler.stats().total_blocks - scheduler.stats().free_blocks, 1);
  const auto committed = scheduler.commit(std::vector<int32_t>{5, 6});
  ASSERT_EQ(committed.size(), 2u);
  EXPECT_EQ(committed[0].id, id);
  EXPECT_EQ(committed[0].end, SeqEnd::kCancelled);
  EXPECT_FALSE(committed[0].token.has_value());
  EXPECT_EQ(committed[1].id, other);
  EXPECT_EQ(committed[1].token, 6) << "not its neighbour's";
  EXPECT_FALSE(scheduler.cancel(id));
  EXPECT_EQ(scheduler.stats().running, 1);
}

TEST(SequenceEnd, DeadlinesEndWhoeverWaitsOrRuns) {
  Scheduler scheduler(config_of());
  SeqSpec hurried = spec_of(3, 50), patient = spec_of(3, 50), never = spec_of(3, 50);
  hurried.deadline = 10;
  patient.deadline = std::numeric_limits<double>::infinity();
  const SeqId a = scheduler.add(hurried), b = scheduler.add(patient), c = scheduler.add(never);
  hurried.deadline = 5;
  const SeqId d = scheduler.add(hurried);  // no place for it yet
  scheduler.plan(4.9);
  EXPECT_EQ(scheduler.commit(std::vector<int32_t>{5, 5}).size(), 2u);
  StepPlan plan = scheduler.plan(5);
  EXPECT_EQ(plan.expired, (Ids{d}));
  EXPECT_EQ(plan.seqs.size(), 2u);
  scheduler.commit(std::vector<int32_t>{5, 5});
  plan = scheduler.plan(11);
  EXPECT_EQ(plan.expired, (Ids{a}));
  ASSERT_EQ(plan.seqs.size(), 2u);
  EXPECT_EQ(plan.seqs[0].id, b);
  EXPECT_EQ(plan.seqs[1].id, c);
  EXPECT_FALSE(scheduler.cancel(a));
  hurried.deadline = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(scheduler.add(hurried), InternalError);
}

TEST(SequenceEnd, AllExpiredGivesAnEmptyPlan) {
  Scheduler scheduler(config_of());
  SeqSpec spec = spec_of(3, 5);
  spec.deadline = 1;
  const SeqId id = scheduler.add(spec);
  const StepPlan plan = scheduler.plan(2);
  EXPECT_TRUE(plan.empty());
  EXPECT_EQ(plan.expired, (Ids{id}));
  EXPECT_FALSE(scheduler.has_work());
  EXPECT_TRUE(scheduler.plan(3).expired.empty());
}

TEST(SchedulerEnd, WhatGeneratesNothingEndsWithItsPrompt) {
  Scheduler scheduler(config_of());
  scheduler.add(spec_of(100, 0));  // max_model_len
  EXPECT_TRUE(scheduler.fits(200, 0));
  EXPECT_FALSE(scheduler.fits(201, 0));
  for (int rows = 8; rows <= 104; rows += 8) {
    const StepPlan plan = scheduler.plan(0);
    EXPECT_EQ(plan.num_rows, rows <= 96 ? 8 : 4);
    EXPECT_FALSE(plan.seqs.at(0).samples);
    const auto committed = scheduler.commit({});
    EXPECT_EQ(committed.at(0).end, rows <= 96 ? SeqEnd::kNone : SeqEnd::kPrompt);
    EXPECT_EQ(committed[0].num_tokens, 0);
  }
  EXPECT_FALSE(scheduler.has_work());
  // The next one finds its prefix.
  const SeqId id = scheduler.add(spec_of(50, 0));
  EXPECT_EQ(scheduler.plan(0).num_rows, 2);
  EXPECT_EQ(scheduler.cached_prompt_tokens(id), 48);
}

SeqSpec one_step(int32_t prompt) {
  SeqSpec spec = spec_of(prompt, 0);
  spec.one_step = true;
  spec.read_prefix_cache = false;
  return spec;
}

TEST(SchedulerEnd, AWholePromptWaitsForAStepWithRoom) {
  Scheduler scheduler(config_of());
  EXPECT_TRUE(scheduler.fits_step(8));
  EXPECT_FALSE(scheduler.fits_step(9));
  EXPECT_THROW(scheduler.add(one_step(9)), InternalError);
  const SeqId text = scheduler.add(spec_of(3, 2));
  const SeqId whole = scheduler.add(one_step(8));
  const SeqId last = scheduler.add(one_step(5));
  for (const int32_t rows :
       {3, 1}) {  // prompt and decode of the text: no room for 8 rows beside it
    const StepPlan plan = scheduler.plan(0);
    ASSERT_EQ(plan.seqs.size(), 1u);
    EXPECT_EQ(plan.seqs[0].id, text);
    EXPECT_EQ(plan.num_rows, rows);
    scheduler.commit(std::vector<int32_t>{1});
  }
  for (const auto& [id, rows] : {std::pair(whole, 8), std::pair(last, 5)}) {
    const StepPlan plan = scheduler.plan(0);
    ASSERT_EQ(plan.seqs.size(), 1u);
    EXPECT_EQ(plan.seqs[0].id, id);
    EXPECT_EQ(plan.num_rows, rows);
    EXPECT_EQ(scheduler.commit({}).at(0).end, SeqEnd::kPrompt);
  }
  EXPECT_FALSE(scheduler.has_work());
  EXPECT_EQ(scheduler.stats().free_blocks, 50);
}

TEST(SchedulerEnd, AnUrgentWholePromptTakesTheBlocksOfADecode) {
  SchedulerConfig config = config_of();
  config.num_blocks = 3;
  config.out_of_blocks = OutOfBlocks::kInterruptLongest;
  Scheduler scheduler(config);
  const SeqId text = scheduler.add(spec_of(4, 3));  // one block, and soon a second
  scheduler.plan(0);
  scheduler.commit(std::vector<int32_t>{1});
  SeqSpec senior = one_step(7);  // two blocks
  senior.priority = -1;
  const SeqId whole = scheduler.add(senior);
  std::vector<SeqId> ended;
  for (int step = 0; step < 10 && scheduler.has_work(); ++step) {
    const StepPlan plan = scheduler.plan(0);
    std::vector<int32_t> drawn;
    for (const PlannedSeq& seq : plan.seqs) {
      if (seq.samples) drawn.push_back(1);
      if (seq.id == whole) {
        EXPECT_EQ(seq.num_tokens, 7);
      }
    }
    for (const CommittedSeq& seq : scheduler.commit(drawn)) {
      if (seq.end != SeqEnd::kNone) ended.push_back(seq.id);
    }
  }
  EXPECT_EQ(ended, (Ids{whole, text}));
}

TEST(SchedulerEnd, AWholePromptWithoutRoomForItsRowsGivesItsBlocksBack) {
  SchedulerConfig config = config_of();
  config.max_num_seqs = 4;
  config.enable_prefix_caching = false;
  Scheduler scheduler(config);
  const auto planned = [&] {
    Ids ids;
    for (const PlannedSeq& seq : scheduler.plan(0).seqs) ids.push_back(seq.id);
    return ids;
  };
  SeqSpec ahead = spec_of(4, 3), prompt = one_step(6);
  ahead.ahead_from = prompt.ahead_from = 0;
  const SeqId text = scheduler.add(ahead);
  scheduler.plan(0);
  const SeqId whole = scheduler.add(prompt);
  const SeqId last = scheduler.add(spec_of(1, 1));
  EXPECT_TRUE(scheduler.plan_ahead(0).empty()) << "`last` doesn't allow it";
  EXPECT_EQ(scheduler.stats().running, 2) << "the whole prompt stays admitted";
  scheduler.commit(std::vector<int32_t>{1});
  SeqSpec senior = spec_of(6, 1);
  senior.priority = -1;
  const SeqId urgent = scheduler.add(senior);
  EXPECT_EQ(planned(), (Ids{urgent, text}));
  EXPECT_EQ(scheduler.stats().free_blocks, 50 - 4) << "those of the two";
  EXPECT_EQ(scheduler.stats().waiting, 1) << "nobody enters meanwhile";
  scheduler.commit(std::vector<int32_t>{1, 1});
  EXPECT_EQ(planned(), (Ids{text, whole, last}));
}

}  // namespace
}  // namespace headrace
