// Running out of memory inside the scheduler: plan() and commit() may be tried again.

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "cpp/sched/scenario.h"

namespace {
thread_local int64_t allocations_left = -1;  // before one fails; -1: none fails
}

void* operator new(std::size_t bytes) {
  if (allocations_left == 0) {
    allocations_left = -1;
    throw std::bad_alloc();
  }
  if (allocations_left > 0) --allocations_left;
  if (void* data = std::malloc(bytes > 0 ? bytes : 1)) return data;
  throw std::bad_alloc();
}
// GCC 12 takes this pair for a mismatch once it has inlined one half of it.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }
#pragma GCC diagnostic pop

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
    Scenario scenario(config, seed);
    scenario.run({.arm = [](int64_t n) { allocations_left = n; }});
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace headrace::fake
