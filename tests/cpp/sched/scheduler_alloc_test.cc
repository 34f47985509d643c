// Running out of memory inside the scheduler: plan() and commit() may be tried again.

#include <gtest/gtest.h>

#include "cpp/sched/scenario.h"
#include "fakes/failing_new.h"

namespace headrace::fake {
namespace {

TEST(SchedulerAllocations, AFailureLosesNothing) {
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
    Scenario scenario(config, seed);
    scenario.run({.drafts = seed % 2 == 0, .ahead = seed % 3 == 0, .arm = [](int64_t n) {
                    allocations_left = n;
                  }});
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace headrace::fake
