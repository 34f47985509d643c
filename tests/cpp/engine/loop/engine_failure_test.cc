// Steps that fail.

#include <gtest/gtest.h>

#include <mutex>
#include <string>

#include "cpp/engine/expect_error.h"
#include "engine/engine_access.h"
#include "fakes/fake_engine.h"

namespace headrace {
namespace {

using testing::expect_error;
using testing::fake_greedy;
using testing::FakeControl;
using testing::FakeEngine;
using testing::greedy;
using testing::read_all;

void expect_failed(const Output& out) {
  EXPECT_EQ(out.finish_reason, FinishReason::kError);
  EXPECT_EQ(out.error_code, ErrorCode::kDevice);
  EXPECT_NE(out.error_message.find("injected failure"), std::string::npos) << out.error_message;
}

TEST(EngineFailure, AFailedStepEndsItsRequestsAndNoOthers) {
  ModelOptions options = FakeEngine::default_options();
  options.max_num_seqs = 2;
  FakeEngine fake(options);
  fake.control->hold();
  Request first = fake.submit({1}, greedy(50));
  fake.control->wait_until_held();
  Request second = fake.submit({2}, greedy(50));
  Request waiting = fake.submit({3}, greedy(50));
  fake.control->fail_steps(1);
  fake.control->resume();
  expect_failed(read_all(first.results()));
  EXPECT_EQ(read_all(second.results()).token_ids, fake_greedy({2}, 50));
  EXPECT_EQ(read_all(waiting.results()).token_ids, fake_greedy({3}, 50));
  const ModelStats stats = fake.engine->model_stats("m");
  EXPECT_EQ(stats.state, ModelState::kRunning);
  EXPECT_EQ(stats.free_kv_blocks, stats.total_kv_blocks);
  EXPECT_EQ(stats.finished_requests, 3u);
}

TEST(EngineFailure, AFailedStepCachesNothing) {
  FakeEngine fake;
  const std::vector<int32_t> prompt(100, 7);
  fake.control->fail_steps(1);
  expect_failed(read_all(fake.submit(prompt, greedy(5)).results()));
  Request again = fake.submit(prompt, greedy(5));
  EXPECT_EQ(read_all(again.results()).token_ids, fake_greedy(prompt, 5));
  EXPECT_EQ(again.results().stats().cached_tokens, 0);
}

TEST(EngineFailure, TwoFailuresBetweenSuccessesDoNotAddUp) {
  FakeEngine fake;
  for (int round = 0; round < 5; ++round) {
    fake.control->fail_steps(2);
    expect_failed(read_all(fake.submit({1}, greedy(5)).results()));
    expect_failed(read_all(fake.submit({1}, greedy(5)).results()));
    EXPECT_EQ(read_all(fake.submit({1}, greedy(5)).results()).token_ids, fake_greedy({1}, 5));
  }
}

TEST(EngineFailure, ThreeInARowFailTheModel) {
  ModelOptions options = FakeEngine::default_options();
  options.max_num_seqs = 1;
  FakeEngine fake(options);
  fake.control->hold();
  std::vector<Request> requests;
  for (int32_t i = 0; i < 6; ++i) requests.push_back(fake.submit({i}, greedy(5)));
  fake.control->fail_steps(-1);
  fake.control->resume();
  for (size_t i = 0; i < 6; ++i) {
    const Output out = read_all(requests[i].results());
    EXPECT_EQ(out.finish_reason, FinishReason::kError);
    EXPECT_FALSE(out.error_message.empty());
    if (i >= 3) {
      EXPECT_NE(out.error_message.find("has failed"), std::string::npos) << out.error_message;
    }
  }
  fake.engine->stop_model("m");
  EXPECT_EQ(fake.engine->model_stats("m").state, ModelState::kFailed);
  EXPECT_EQ(fake.engine->model_stats("m").waiting_requests, 0);
  expect_error(ErrorCode::kInvalidState, {"failed", "steps in a row"},
               [&] { fake.submit({1}, greedy(1)); });
  expect_error(ErrorCode::kInvalidState, {"failed"}, [&] { fake.engine->start_model("m"); });
  fake.engine->clear_prefix_cache("m");

  fake.engine->release_model("m");
  EXPECT_EQ(fake.control->models_alive, 0);
  fake.control->fail_steps(0);
  fake.engine->install_model("m", options);
  fake.engine->start_model("m");
  EXPECT_EQ(read_all(fake.submit({1}, greedy(5)).results()).token_ids, fake_greedy({1}, 5));
}

TEST(EngineFailure, ALostDeviceFailsTheModelAtOnce) {
  ModelOptions options = FakeEngine::default_options();
  options.max_num_seqs = 1;
  FakeEngine fake(options);
  fake.control->hold();
  const Request first = fake.submit({1}, greedy(5)), second = fake.submit({2}, greedy(5));
  fake.control->fail_steps(1);
  fake.control->lost = true;
  fake.control->resume();
  const Output in_step = read_all(first.results()), waiting = read_all(second.results());
  for (const Output& out : {in_step, waiting}) {
    EXPECT_EQ(out.finish_reason, FinishReason::kError);
    EXPECT_EQ(out.error_code, ErrorCode::kDevice);
  }
  EXPECT_NE(in_step.error_message.find("injected"), std::string::npos) << in_step.error_message;
  EXPECT_NE(waiting.error_message.find("has failed"), std::string::npos) << waiting.error_message;
  fake.engine->stop_model("m");
  EXPECT_EQ(fake.engine->model_stats("m").state, ModelState::kFailed);
  fake.engine->release_model("m");
  EXPECT_EQ(fake.control->models_alive, 0);
}

TEST(EngineFailure, SubmitsRacingWithTheFailureAllEnd) {
  for (int round = 0; round < 20; ++round) {
    FakeEngine fake;
    fake.control->fail_steps(-1);
    std::atomic<int> accepted{0}, refused{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int k = 0; k < 10; ++k) {
          try {
            EXPECT_EQ(read_all(fake.submit({1}, greedy(5)).results()).finish_reason,
                      FinishReason::kError);
            ++accepted;
          } catch (const Error& e) {
            EXPECT_EQ(e.code(), ErrorCode::kInvalidState);
            ++refused;
          }
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(accepted + refused, 40);
    EXPECT_GT(refused, 0);
  }
}

TEST(EngineFailure, IsLogged) {
  auto control = std::make_shared<FakeControl>();
  std::mutex mutex;
  std::vector<std::string> errors;
  EngineOptions options;
  options.log_sink = [&](LogLevel level, std::string_view text) {
    const std::lock_guard lock(mutex);
    if (level == LogLevel::kError) errors.emplace_back(text);
    throw 1;  // a sink's trouble is not the engine's
  };
  auto engine = internal::EngineAccess::make(options, testing::fake_loader(control));
  engine->install_model("m", FakeEngine::default_options());
  engine->start_model("m");
  control->fail_steps(1);
  engine->submit("m", {.prompt_token_ids = {1}, .sampling = greedy(1)}).wait();
  engine.reset();
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_NE(errors[0].find("injected failure"), std::string::npos);
}

}  // namespace
}  // namespace headrace
