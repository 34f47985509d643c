#pragma once

#include <gtest/gtest.h>

#include "fakes/fake_engine.h"

namespace headrace::testing {

/// Nothing is under way, and nothing is held.
inline void expect_idle(FakeEngine& fake) {
  fake.engine->stop_model("m");
  EXPECT_EQ(fake.control->begun, fake.control->collected);
  const ModelStats stats = fake.engine->model_stats("m");
  EXPECT_EQ(stats.free_kv_blocks, stats.total_kv_blocks);
  EXPECT_EQ(stats.free_state_slots + stats.cached_state_slots, stats.total_state_slots);
  EXPECT_EQ(stats.running_requests + stats.waiting_requests, 0);
}

}  // namespace headrace::testing
