// Running out of memory inside the scheduler: plan() and commit() may be tried again.

#include <gtest/gtest.h>

#include <new>
#include <vector>

#include "cpp/sched/scenario.h"
#include "fakes/failing_new.h"

namespace headrace::fake {
namespace {

TEST(SchedulerAllocations, AFailureLosesNothing) {
  const std::vector<int32_t> kMixed = {0, 5, 3}, kSliding = {4, 2};
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SchedulerConfig config;
    config.max_num_seqs = static_cast<int32_t>(1 + seed % 7);
    config.max_num_batched_tokens = 20;
    config.block_size = 2;
    config.max_model_len = 50;
    config.num_blocks = static_cast<int32_t>(10 + seed % 40);
    config.out_of_blocks = static_cast<OutOfBlocks>(seed % 3);
    config.num_host_blocks = seed % 4 == 0 ? 30 : 0;
    if (seed % 5 > 2) config.windows = seed % 5 == 3 ? kMixed : kSliding;
    config.num_blocks *= static_cast<int32_t>(config.windows.size());
    if (seed / 7 % 2 == 0) {
      config.num_state_slots = config.max_num_seqs + static_cast<int32_t>(seed % 8);
      config.num_host_state_slots = static_cast<int32_t>(seed / 14 % 3);
      config.snapshot_interval = 4;
    }
    Scenario scenario(config, seed);
    scenario.run({.drafts = seed % 2 == 0, .ahead = seed % 3 == 0, .arm = [](int64_t n) {
                    allocations_left = n;
                  }});
    if (HasFailure()) return;
  }
}

TEST(SchedulerAllocations, APlanListsWhomItPreemptedOnce) {
  bool failed = true;
  int failures = 0;
  for (int64_t allocations = 0; failed; ++allocations) {
    SCOPED_TRACE(testing::Message() << allocations << " allocations");
    SchedulerConfig config;
    config.max_num_seqs = 1;
    config.max_model_len = config.num_blocks = 8;
    Scheduler scheduler(config);
    const auto add = [&](int32_t priority) {
      return scheduler.add({.prompt = {1}, .max_tokens = 2, .priority = priority});
    };
    const SeqId lazy = add(1);
    scheduler.plan(0);
    scheduler.commit(std::vector<int32_t>{1});
    add(0);
    StepPlan plan;
    failed = false;
    allocations_left = allocations;
    try {
      plan = scheduler.plan(0);
    } catch (const std::bad_alloc&) {
      failed = true;
      ++failures;
      plan = scheduler.plan(0);
    }
    allocations_left = -1;
    EXPECT_EQ(plan.preempted, std::vector<SeqId>{lazy});
    EXPECT_EQ(scheduler.stats().preemptions, 1u);
    ASSERT_LT(allocations, 100);
  }
  EXPECT_GT(failures, 2);
}

}  // namespace
}  // namespace headrace::fake
