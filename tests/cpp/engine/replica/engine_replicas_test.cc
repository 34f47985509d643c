// Several replicas of a model behind one name: who computes what, and what one that fails, stops or
// is released means for the others.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cpp/engine/expect_error.h"
#include "engine/engine_access.h"
#include "engine/loop/model_control.h"
#include "fakes/fake_engine.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using testing::expect_error;
using testing::fake_greedy;
using testing::fake_loader;
using testing::FakeControl;
using testing::FakeEngine;
using testing::greedy;
using testing::read_all;
using Ids = std::vector<int32_t>;

Ids tokens(int32_t count, int32_t first) {
  Ids out(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) out[static_cast<size_t>(i)] = 1 + (first + i) % 49;
  return out;
}

/// An engine of fake models, each replica with a control of its own.
class Replicas : public ::testing::Test {
 protected:
  void make(int32_t count, ModelOptions options = FakeEngine::default_options()) {
    options.data_parallel_size = count;
    for (int32_t i = 0; i < count; ++i) controls.push_back(std::make_shared<FakeControl>());
    engine = internal::EngineAccess::make(
        {.log_sink =
             [this](LogLevel, std::string_view text) {
               const std::lock_guard lock(mutex);
               log.emplace_back(text);
             }},
        [this](const std::string& name, const ModelOptions& own,
               const internal::ReplicaPlace& replica, Logger& logger) {
          const auto& control = controls[static_cast<size_t>(replica.index)];
          return fake_loader(control)(name, own, replica, logger);
        });
    engine->install_model("m", options);
    engine->start_model("m");
  }
  Request submit(Ids prompt, int32_t max_tokens = 5, const std::string& lora = "") {
    RequestOptions request;
    request.prompt_token_ids = std::move(prompt);
    request.sampling = greedy(max_tokens);
    request.lora_name = lora;
    return engine->submit("m", request);
  }
  int32_t replica_of(const Request& request) { return request.results().stats().replica; }
  void hold() {
    for (const auto& control : controls) control->hold();
  }
  void resume() {
    for (const auto& control : controls) control->resume();
  }
  /// The device of a replica is lost while it computes.
  void fail(size_t replica) {
    const int32_t left = engine->model_stats("m").running_replicas - 1;
    hold();
    controls[replica]->lost = true;
    controls[replica]->fail_steps(-1);
    std::vector<Request> requests;
    for (int32_t i = 0; i < 1 + left; ++i) requests.push_back(submit({1, 2, 3}));
    resume();
    for (const Request& request : requests) request.wait();
    wait_for([&](const ModelStats& now) { return now.running_replicas == left; });
  }
  /// Until the engine says so.
  void wait_for(const std::function<bool(const ModelStats&)>& done) {
    while (!done(engine->model_stats("m"))) std::this_thread::sleep_for(1ms);
  }

  std::vector<std::shared_ptr<FakeControl>> controls;
  std::mutex mutex;
  std::vector<std::string> log;
  std::unique_ptr<Engine> engine;  // last: its threads use the others
};

TEST_F(Replicas, AnswerAsOneDoes) {
  make(3);
  hold();  // or two of them may be done before the third is asked for anything
  std::vector<Request> requests;
  for (int32_t i = 0; i < 60; ++i) requests.push_back(submit(tokens(1 + i, i), 8));
  resume();
  std::set<int32_t> used;
  for (int32_t i = 0; i < 60; ++i) {
    const Request& request = requests[static_cast<size_t>(i)];
    EXPECT_EQ(read_all(request.results()).token_ids, fake_greedy(tokens(1 + i, i), 8));
    used.insert(replica_of(request));
  }
  EXPECT_EQ(used, (std::set<int32_t>{0, 1, 2}));
  const ModelStats stats = engine->model_stats("m");
  EXPECT_EQ(stats.finished_requests, 60u);
  EXPECT_EQ(stats.generated_tokens, 480u);
  EXPECT_EQ(stats.running_replicas, 3);
  EXPECT_EQ(stats.total_kv_blocks, 3 * 64);
  EXPECT_EQ(engine->model_info("m").data_parallel_size, 3);
}

TEST_F(Replicas, TheOneWithTheLeastToDoTakesARequest) {
  make(2);
  hold();
  const Request a = submit(tokens(40, 0)), b = submit(tokens(8, 40)), c = submit(tokens(8, 7));
  EXPECT_EQ(replica_of(a), 0);
  EXPECT_EQ(replica_of(b), 1);
  EXPECT_EQ(replica_of(c), 1);
  resume();
  for (const Request& request : {a, b, c}) request.wait();
  EXPECT_EQ(replica_of(submit(tokens(8, 3))), 0) << "what has finished is no load";
}

TEST_F(Replicas, AConversationComesBackToItsReplica) {
  make(2);
  hold();
  const Request a = submit(tokens(48, 0)), b = submit(tokens(48, 20));
  EXPECT_EQ(replica_of(b), 1);
  resume();
  Ids second = tokens(48, 20);
  const Output answer = read_all(b.results());
  a.wait();
  second.insert(second.end(), answer.token_ids.begin(), answer.token_ids.end());
  const Ids question = tokens(20, 31);
  second.insert(second.end(), question.begin(), question.end());
  const Request next = submit(second);
  EXPECT_EQ(replica_of(next), 1);
  EXPECT_EQ(read_all(next.results()).token_ids, fake_greedy(second, 5));
  EXPECT_EQ(next.results().stats().cached_tokens, 48);
  engine->clear_prefix_cache("m");
  const Request cleared = submit(second);
  EXPECT_EQ(replica_of(cleared), 0);
  cleared.wait();
  EXPECT_EQ(cleared.results().stats().cached_tokens, 0);
}

TEST_F(Replicas, OneThatFailsLeavesTheOthers) {
  make(2);
  hold();
  const Request a = submit({1, 2, 3}, 20), b = submit({4, 5, 6}, 20);
  ASSERT_EQ(replica_of(b), 1);
  controls[1]->lost = true;
  controls[1]->fail_steps(-1);
  resume();
  EXPECT_EQ(read_all(b.results()).finish_reason, FinishReason::kError);
  EXPECT_EQ(read_all(a.results()).token_ids, fake_greedy({1, 2, 3}, 20));
  wait_for([](const ModelStats& now) { return now.running_replicas == 1; });
  EXPECT_EQ(engine->model_stats("m").state, ModelState::kRunning);
  for (int i = 0; i < 3; ++i) {
    const Request next = submit({7, 8, i}, 4);
    EXPECT_EQ(replica_of(next), 0);
    EXPECT_EQ(read_all(next.results()).token_ids, fake_greedy({7, 8, i}, 4));
  }
  {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(std::ranges::any_of(log, [](const std::string& line) {
      return line.find("m (replica 1)") != std::string::npos &&
             line.find("has failed") != std::string::npos;
    }));
  }
  engine->stop_model("m");
  EXPECT_EQ(engine->model_stats("m").state, ModelState::kStopped);
  engine->start_model("m");
  EXPECT_EQ(engine->model_stats("m").running_replicas, 1);
  EXPECT_EQ(read_all(submit({9}, 4).results()).token_ids, fake_greedy({9}, 4));

  controls[0]->lost = true;
  controls[0]->fail_steps(-1);
  EXPECT_EQ(read_all(submit({9, 1}).results()).finish_reason, FinishReason::kError);
  wait_for([](const ModelStats& now) { return now.state == ModelState::kFailed; });
  expect_error(ErrorCode::kInvalidState, {"takes no requests", "failed", "replica 0"},
               [&] { submit({1}); });
  expect_error(ErrorCode::kInvalidState, {"failed"}, [&] { engine->start_model("m"); });
  engine->release_model("m");
}

TEST_F(Replicas, StopWaitsForAllAndRefusesAtOnce) {
  make(2);
  controls[0]->hold();
  const Request a = submit({1, 2, 3}), b = submit({4, 5, 6});
  EXPECT_EQ(read_all(b.results()).token_ids, fake_greedy({4, 5, 6}, 5));
  EXPECT_FALSE(engine->stop_model("m", 5ms));
  EXPECT_EQ(engine->model_stats("m").state, ModelState::kStopping);
  expect_error(ErrorCode::kInvalidState, {"stopping"}, [&] { submit({1}); });
  resume();
  EXPECT_TRUE(engine->stop_model("m", 60s));
  EXPECT_EQ(read_all(a.results()).token_ids, fake_greedy({1, 2, 3}, 5));
  EXPECT_EQ(engine->model_stats("m").state, ModelState::kStopped);
  EXPECT_EQ(engine->model_stats("m").running_replicas, 0);
}

TEST_F(Replicas, ReleaseEndsAllAndGivesTheirMemoryBack) {
  make(3);
  hold();
  std::vector<Request> requests;
  for (int32_t i = 0; i < 6; ++i) requests.push_back(submit({1 + i}, 100));
  std::thread releasing([&] { engine->release_model("m"); });
  // Until none of them takes requests: all know of the release before their steps go on.
  EXPECT_THROW(
      {
        for (;; std::this_thread::sleep_for(1ms)) submit({1}, 1);
      },
      Error);
  resume();
  releasing.join();
  for (const Request& request : requests) {
    EXPECT_EQ(read_all(request.results()).finish_reason, FinishReason::kAbort);
  }
  for (const auto& control : controls) EXPECT_EQ(control->models_alive, 0);
}

TEST_F(Replicas, AnAdapterIsThereOnEach) {
  ModelOptions options = FakeEngine::default_options();
  options.max_loras = 2;
  make(2, options);
  engine->load_lora("m", "l", "4");
  ASSERT_EQ(engine->loras("m").size(), 1u);
  EXPECT_EQ(engine->loras("m")[0].rank, 4);
  hold();
  const Request a = submit({1, 2, 3}, 5, "l"), b = submit({4, 5, 6}, 5, "l");
  EXPECT_NE(replica_of(a), replica_of(b));
  EXPECT_EQ(engine->loras("m")[0].live_requests, 2);
  expect_error(ErrorCode::kInvalidState, {"'l'", "2 requests"},
               [&] { engine->unload_lora("m", "l"); });
  resume();
  EXPECT_EQ(read_all(a.results()).token_ids, fake_greedy({1, 2, 3}, 5, 50, 4));
  EXPECT_EQ(read_all(b.results()).token_ids, fake_greedy({4, 5, 6}, 5, 50, 4));
  engine->unload_lora("m", "l");
  expect_error(ErrorCode::kNotFound, {"'l'"}, [&] { submit({1}, 1, "l"); });
  controls[1]->fail_loading = true;
  EXPECT_THROW(engine->load_lora("m", "n", "4"), Error);
  EXPECT_TRUE(engine->loras("m").empty());
}

TEST_F(Replicas, ACallbackOfOneCantWaitForAnother) {
  make(2);
  hold();
  Request a = submit({1, 2}), b = submit({3, 4});
  std::vector<ErrorCode> codes;
  b.results().on_output([&] {
    if (!codes.empty()) return;
    try {
      engine->stop_model("m");
    } catch (const Error& error) {
      codes.push_back(error.code());
    }
    try {
      engine->release_model("m");
    } catch (const Error& error) {
      codes.push_back(error.code());
    }
  });
  resume();
  a.wait();
  b.wait();
  engine->stop_model("m");
  EXPECT_EQ(codes, (std::vector<ErrorCode>{ErrorCode::kInvalidState, ErrorCode::kInvalidState}));
}

TEST_F(Replicas, OneThatHasFailedTakesNoAdapter) {
  ModelOptions options = FakeEngine::default_options();
  options.max_loras = 2;
  make(2, options);
  fail(0);
  controls[0]->fail_loading = true;
  engine->load_lora("m", "l", "4");
  ASSERT_EQ(engine->loras("m").size(), 1u);
  EXPECT_EQ(engine->loras("m")[0].rank, 4);
  const Request request = submit({1, 2, 3}, 5, "l");
  EXPECT_EQ(replica_of(request), 1);
  EXPECT_EQ(read_all(request.results()).token_ids, fake_greedy({1, 2, 3}, 5, 50, 4));
  engine->unload_lora("m", "l");
  controls[1]->lost = true;
  controls[1]->fail_steps(-1);
  submit({1, 2, 3}).wait();
  wait_for([](const ModelStats& now) { return now.state == ModelState::kFailed; });
  expect_error(ErrorCode::kInvalidState, {"'l'", "model 'm' has failed"},
               [&] { engine->load_lora("m", "l", "4"); });
}

TEST_F(Replicas, WhatAFailedOneCountedEndsWithTheNextStart) {
  make(2);
  fail(1);
  ModelStats now = engine->model_stats("m");
  EXPECT_GE(now.finished_requests, 2u);
  EXPECT_EQ(now.total_kv_blocks, 64) << "nobody can use the other's";
  EXPECT_EQ(now.free_kv_blocks, 64);
  engine->stop_model("m");
  engine->start_model("m");
  now = engine->model_stats("m");
  EXPECT_EQ(now.running_replicas, 1);
  EXPECT_EQ(now.finished_requests, 0u);
  EXPECT_EQ(now.steps, 0u);
  EXPECT_EQ(now.total_kv_blocks, 64);
}

TEST_F(Replicas, AStartBesideAStopIsOfAllOrNone) {
  make(4);
  for (int round = 0; round < 200; ++round) {
    engine->stop_model("m");
    std::atomic<bool> started{false};
    std::thread stopping([&] {
      while (!started) engine->stop_model("m");
    });
    engine->start_model("m");
    started = true;
    stopping.join();
    const ModelStats now = engine->model_stats("m");
    ASSERT_EQ(now.running_replicas, now.state == ModelState::kRunning ? 4 : 0) << round;
  }
}

TEST(ModelControl, WhoWaitsForAStopTellsNobodyToStop) {
  internal::ModelControl control;
  control.begin();
  EXPECT_TRUE(control.wait_stopped(0ms));
  EXPECT_EQ(control.state(), ModelState::kRunning);
  control.drain();
  EXPECT_FALSE(control.wait_stopped(1ms));
}

TEST_F(Replicas, ACallbackClearsPrefixesBesideARelease) {
  make(2);
  fail(1);
  controls[0]->hold();
  const Request request = submit({1, 2}, 50);
  std::atomic<bool> entered{false}, cleared{false};
  request.results().on_output([&] {
    if (entered.exchange(true)) return;
    try {
      for (;; std::this_thread::sleep_for(1ms)) submit({1}, 1);
    } catch (const Error&) {  // the release has begun, and waits for this thread
    }
    engine->clear_prefix_cache("m");
    cleared = true;
  });
  controls[0]->resume();
  while (!entered) std::this_thread::sleep_for(1ms);
  engine->release_model("m");
  EXPECT_TRUE(cleared);
}

TEST_F(Replicas, CallbacksOfThoseThatFailClearPrefixes) {
  make(2);
  hold();
  std::atomic<int> cleared{0};
  std::vector<Request> requests;  // of each replica's, some are in no step
  for (int32_t i = 0; i < 40; ++i) requests.push_back(submit({1 + i}));
  for (const Request& request : requests) {
    request.results().on_output([&] {
      engine->clear_prefix_cache("m");
      ++cleared;
    });
  }
  for (const auto& control : controls) {
    control->lost = true;
    control->fail_steps(-1);
  }
  resume();
  wait_for([](const ModelStats& now) { return now.state == ModelState::kFailed; });
  engine->release_model("m");
  EXPECT_EQ(cleared, 40);
}

TEST_F(Replicas, AStoppedOneIsClearedWhenItBegins) {
  make(2);
  hold();
  const Request a = submit(tokens(48, 0)), b = submit(tokens(48, 20));
  ASSERT_EQ(replica_of(b), 1);
  resume();
  a.wait();
  b.wait();
  controls[0]->hold();
  const Request last = submit({9});
  ASSERT_EQ(replica_of(last), 0);
  last.results().on_output([&] { engine->clear_prefix_cache("m"); });
  EXPECT_FALSE(engine->stop_model("m", 20ms));
  controls[0]->resume();
  engine->stop_model("m");
  engine->start_model("m");
  controls[0]->hold();
  const Request other = submit(tokens(60, 3)), again = submit(tokens(48, 20));
  ASSERT_EQ(replica_of(again), 1);
  again.wait();
  EXPECT_EQ(again.results().stats().cached_tokens, 0);
  controls[0]->resume();
}

TEST_F(Replicas, ManyThreadsSubmitAndCancel) {
  make(3);
  std::vector<std::thread> threads;
  for (int32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int32_t i = 0; i < 40; ++i) {
        const Ids prompt = tokens(1 + (7 * i + t) % 60, t);
        Request request = submit(prompt, 6);
        if (i % 5 == 0) request.cancel();
        const Output out = read_all(request.results());
        if (out.finish_reason == FinishReason::kAbort) continue;
        EXPECT_EQ(out.token_ids, fake_greedy(prompt, 6));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  engine->stop_model("m");
  EXPECT_EQ(engine->model_stats("m").finished_requests, 160u);
}

}  // namespace
}  // namespace headrace
