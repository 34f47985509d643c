// The loop's thread runs out of memory at some point: every request ends all the same.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "fakes/failing_new.h"
#include "fakes/fake_engine.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using testing::fake_greedy;
using testing::FakeEngine;
using testing::greedy;
using testing::read_all;

/// Fails the loop's n-th allocation after its first step. Returns how many requests failed.
int fail_allocation(int64_t n) {
  FakeEngine fake;
  fake.control->hold();
  std::vector<Request> requests = {fake.submit({1}, greedy(6))};
  fake.control->wait_until_held();
  std::atomic<bool> armed{false};
  requests[0].results().on_output([&] {
    if (!armed.exchange(true)) allocations_left = n;
  });
  for (int32_t i = 2; i < 8; ++i) {
    SamplingParams params = greedy(i);
    params.logprobs = 1;
    params.no_repeat_ngram_size = i % 3;
    requests.push_back(fake.submit({i, i, i}, params));
  }
  requests[3].cancel();
  fake.control->resume();
  int failed = 0;
  for (const Request& request : requests) {
    if (!request.wait(60s)) {
      ADD_FAILURE() << "allocation " << n << ": " << request.id() << " never ends";
      std::abort();  // its engine could not be released either
    }
    const Output out = read_all(request.results());
    const bool has_failed = out.finish_reason == FinishReason::kError;
    EXPECT_EQ(out.error_code == ErrorCode::kOutOfMemory, has_failed);
    failed += has_failed;
  }
  try {
    const Output late = read_all(fake.submit({9}, greedy(3)).results());
    const bool has_failed = late.error_code == ErrorCode::kOutOfMemory;  // the n-th came only now
    EXPECT_TRUE(has_failed || late.token_ids == fake_greedy({9}, 3)) << "allocation " << n;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidState) << "allocation " << n;
    EXPECT_EQ(fake.engine->model_stats("m").state, ModelState::kFailed);
  }
  return failed;
}

TEST(EngineAllocations, EveryRequestEndsWhicheverFails) {
  int failed = 0;
  for (int64_t n = 0; n < 400 && !HasFailure(); ++n) failed += fail_allocation(n);
  EXPECT_GT(failed, 200);
}

}  // namespace
}  // namespace headrace
