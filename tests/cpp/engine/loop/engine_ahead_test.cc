// Steps that begin before the results of the ones before them are there.

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "cpp/engine/loop/expect_idle.h"
#include "fakes/fake_engine.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using testing::expect_idle;
using testing::fake_greedy;
using testing::FakeEngine;
using testing::greedy;
using testing::read_all;
using Ids = std::vector<int32_t>;

FakeEngine make_engine(ModelOptions options = FakeEngine::default_options()) {
  return FakeEngine(std::move(options), {.ahead = true});
}

TEST(EngineAhead, TheNextStepBeginsBeforeResultsAreWaitedFor) {
  FakeEngine fake = make_engine();
  const int covered = fake.control->covered, steps = fake.control->collected;
  EXPECT_EQ(read_all(fake.submit({1, 2, 3}, greedy(50)).results()).token_ids,
            fake_greedy({1, 2, 3}, 50));
  EXPECT_EQ(fake.control->collected - steps, 50) << "its end is known: no step is in vain";
  EXPECT_EQ(fake.control->covered - covered, 49);
  expect_idle(fake);
}

TEST(EngineAhead, PromptsInChunksAndNewcomersDoNotBreakTheChain) {
  ModelOptions options = FakeEngine::default_options();
  options.max_prefill_chunk = 16;
  FakeEngine fake = make_engine(options);
  fake.control->hold();
  std::vector<Request> requests;
  for (int32_t i = 0; i < 6; ++i) {
    requests.push_back(fake.submit(Ids(static_cast<size_t>(20 + 9 * i), i + 1), greedy(30)));
  }
  fake.control->resume();
  for (int32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(read_all(requests[static_cast<size_t>(i)].results()).token_ids,
              fake_greedy(Ids(static_cast<size_t>(20 + 9 * i), i + 1), 30));
  }
  EXPECT_GE(fake.control->covered, fake.control->collected * 9 / 10);
  expect_idle(fake);
}

TEST(EngineAhead, ManyRowsOfLogitsAreDrawnFromInSeveralCalls) {
  ModelOptions options = FakeEngine::default_options();
  options.max_num_seqs = 20;
  FakeEngine fake(options, {.max_logit_rows = 3, .ahead = true});
  fake.control->hold();
  std::vector<Request> requests;
  for (int32_t i = 0; i < 20; ++i) requests.push_back(fake.submit({i}, greedy(12 + i % 3)));
  fake.control->resume();
  for (int32_t i = 0; i < 20; ++i) {
    EXPECT_EQ(read_all(requests[static_cast<size_t>(i)].results()).token_ids,
              fake_greedy({i}, 12 + i % 3));
  }
  EXPECT_GT(fake.control->covered, 8);
  expect_idle(fake);
}

TEST(EngineAhead, WhoStopsHasOneRowInVain) {
  FakeEngine fake = make_engine();
  const Ids all = fake_greedy({5}, 40);
  size_t at = 5;
  while (std::find(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(at), all[at]) !=
         all.begin() + static_cast<std::ptrdiff_t>(at)) {
    ++at;
  }
  SamplingParams params = greedy(40);
  params.stop_token_ids = {all[at]};
  const int before = fake.control->rows;
  Request request = fake.submit({5}, params);
  const Output out = read_all(request.results());
  EXPECT_EQ(out.finish_reason, FinishReason::kStop);
  EXPECT_EQ(out.stop_token, all[at]);
  expect_idle(fake);
  EXPECT_EQ(fake.control->rows - before, static_cast<int>(at) + 2);
}

TEST(EngineAhead, LogprobsComeWithTheirTokens) {
  SamplingParams params{.temperature = 1, .max_tokens = 20, .ignore_eos = true};
  params.seed = 5;
  params.logprobs = 3;
  FakeEngine plain;
  const Output want = read_all(plain.submit({4, 4}, params).results());
  FakeEngine fake = make_engine();
  const Output got = read_all(fake.submit({4, 4}, params).results());
  EXPECT_EQ(got.token_ids, want.token_ids);
  ASSERT_EQ(got.logprobs.size(), 20u);
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(got.logprobs[i].top, want.logprobs[i].top);
  EXPECT_GE(fake.control->covered, 18);
  const int covered = fake.control->covered;
  params.logprobs = 5;  // more than it takes ahead
  EXPECT_EQ(read_all(fake.submit({4, 4}, params).results()).token_ids, want.token_ids);
  EXPECT_EQ(fake.control->covered, covered);
}

TEST(EngineAhead, ACancelledRequestLeavesAtOnce) {
  FakeEngine fake = make_engine();
  fake.control->hold();
  Request a = fake.submit({1}, greedy(200)), b = fake.submit({2}, greedy(30));
  for (int i = 0; i < 4; ++i) {
    fake.control->wait_until_held();
    fake.control->step_once();
  }
  fake.control->wait_until_held();
  a.cancel();
  fake.control->step_once();
  const Output out = read_all(a.results());
  EXPECT_EQ(out.finish_reason, FinishReason::kAbort);
  EXPECT_EQ(out.token_ids, fake_greedy({1}, static_cast<int32_t>(out.token_ids.size())));
  EXPECT_LE(fake.engine->model_stats("m").running_requests, 1) << "who sees it sees it gone";
  fake.control->resume();
  EXPECT_EQ(read_all(b.results()).token_ids, fake_greedy({2}, 30));
  expect_idle(fake);
}

TEST(EngineAhead, DeadlinesEndWhatIsUnderWay) {
  FakeEngine fake = make_engine();
  fake.control->device_nanoseconds = 200000;
  RequestOptions rest;
  rest.timeout = 5ms;
  Request a = fake.submit({1}, greedy(250), rest), b = fake.submit({2}, greedy(60));
  const Output out = read_all(a.results());
  EXPECT_EQ(out.error_code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(out.token_ids, fake_greedy({1}, static_cast<int32_t>(out.token_ids.size())));
  EXPECT_EQ(read_all(b.results()).token_ids, fake_greedy({2}, 60));
  expect_idle(fake);
}

void expect_failed(const Output& out, const std::string& text) {
  EXPECT_EQ(out.finish_reason, FinishReason::kError);
  EXPECT_EQ(out.error_code, ErrorCode::kDevice);
  EXPECT_NE(out.error_message.find(text), std::string::npos) << out.error_message;
}

TEST(EngineAhead, AFailureFoundLateEndsWhatIsAheadTooAndIsOneFailure) {
  FakeEngine fake = make_engine();
  for (int round = 0; round < 5; ++round) {  // three failures in a row would end the model
    fake.control->hold();
    Request a = fake.submit({1}, greedy(50));
    fake.control->wait_until_held();
    Request b = fake.submit({2}, greedy(50));
    fake.control->step_once();
    fake.control->wait_until_held();
    fake.control->step_once();
    fake.control->wait_until_held();
    fake.control->fail_steps(1);
    fake.control->resume();
    expect_failed(read_all(a.results()), "injected failure");
    expect_failed(read_all(b.results()), "injected failure");
    EXPECT_EQ(read_all(fake.submit({1}, greedy(20)).results()).token_ids, fake_greedy({1}, 20));
  }
  EXPECT_EQ(fake.engine->model_stats("m").state, ModelState::kRunning);
  EXPECT_EQ(fake.engine->model_stats("m").finished_requests, 15u);
  expect_idle(fake);
}

TEST(EngineAhead, AStepThatCannotBeginFailsInItsTurn) {
  FakeEngine fake = make_engine();
  fake.control->hold();
  Request a = fake.submit({1}, greedy(50)), b = fake.submit({2}, greedy(2));
  fake.control->wait_until_held();
  fake.control->step_once();
  fake.control->wait_until_held();
  fake.control->step_once();
  fake.control->wait_until_held();
  fake.control->fail_begins = 1;
  fake.control->resume();
  const Output out = read_all(a.results());
  expect_failed(out, "injected failure of a launch");
  EXPECT_GE(out.token_ids.size(), 3u) << "what was under way is delivered";
  EXPECT_EQ(out.token_ids, fake_greedy({1}, static_cast<int32_t>(out.token_ids.size())));
  EXPECT_EQ(read_all(b.results()).token_ids, fake_greedy({2}, 2));
  EXPECT_EQ(read_all(fake.submit({1}, greedy(20)).results()).token_ids, fake_greedy({1}, 20));
  expect_idle(fake);
}

TEST(EngineAhead, ThreeFailuresInARowFailTheModelAndItIsStillReleased) {
  FakeEngine fake = make_engine();
  fake.control->hold();
  Request a = fake.submit({1}, greedy(50));
  fake.control->wait_until_held();
  fake.control->fail_steps(-1);
  fake.control->resume();
  EXPECT_EQ(read_all(a.results()).finish_reason, FinishReason::kError);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(read_all(fake.submit({1}, greedy(5)).results()).finish_reason, FinishReason::kError);
  }
  while (fake.engine->model_stats("m").state != ModelState::kFailed) std::this_thread::yield();
  fake.engine->release_model("m");
  EXPECT_EQ(fake.control->models_alive, 0);
}

TEST(EngineAhead, AModelIsReleasedWithTwoStepsUnderWay) {
  FakeEngine fake = make_engine();
  fake.control->hold();
  Request a = fake.submit({1}, greedy(200));
  for (int i = 0; i < 3; ++i) {
    fake.control->wait_until_held();
    fake.control->step_once();
  }
  fake.control->wait_until_held();
  std::thread release([&] { fake.engine->release_model("m"); });
  const auto refuses = [&] {
    try {
      fake.submit({2}, greedy(1));
      return false;
    } catch (const Error&) {
      return true;
    }
  };
  while (!refuses()) std::this_thread::sleep_for(1ms);
  fake.control->resume();
  release.join();
  EXPECT_EQ(read_all(a.results()).finish_reason, FinishReason::kAbort);
  EXPECT_EQ(fake.control->begun, fake.control->collected);
  EXPECT_EQ(fake.control->models_alive, 0);
}

TEST(EngineAhead, APrefixFoundWhileStepsAreUnderWayGivesTheSame) {
  FakeEngine fake = make_engine();
  const Ids prompt(100, 7);
  EXPECT_EQ(read_all(fake.submit(prompt, greedy(5)).results()).token_ids, fake_greedy(prompt, 5));
  Request busy = fake.submit({3}, greedy(200));
  Request again = fake.submit(prompt, greedy(30));
  EXPECT_EQ(read_all(again.results()).token_ids, fake_greedy(prompt, 30));
  EXPECT_EQ(again.results().stats().cached_tokens, 96);
  fake.engine->clear_prefix_cache("m");
  EXPECT_EQ(read_all(fake.submit(prompt, greedy(9)).results()).token_ids, fake_greedy(prompt, 9));
  EXPECT_EQ(read_all(busy.results()).token_ids, fake_greedy({3}, 200));
  expect_idle(fake);
}

}  // namespace
}  // namespace headrace
