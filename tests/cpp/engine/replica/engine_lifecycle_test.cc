// Install, start, stop, release: in every order, from every thread.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "cpp/engine/expect_error.h"
#include "engine/engine_access.h"
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

constexpr ErrorCode kState = ErrorCode::kInvalidState;
constexpr ErrorCode kNotFound = ErrorCode::kNotFound;
/// Of these, 200 take so long that a release is seen before the last one, however late it begins.
constexpr int64_t kSlowStep = 20'000'000;

struct Lifecycle : ::testing::Test {
  std::shared_ptr<FakeControl> control = std::make_shared<FakeControl>();
  std::unique_ptr<Engine> engine = internal::EngineAccess::make({}, fake_loader(control));

  void install(const std::string& name) {
    engine->install_model(name, FakeEngine::default_options());
  }
  Request submit(const std::string& name, Ids prompt = {1, 2}, int32_t max_tokens = 100) {
    RequestOptions options;
    options.prompt_token_ids = std::move(prompt);
    options.sampling = greedy(max_tokens);
    return engine->submit(name, options);
  }
  ModelState state(const std::string& name) { return engine->model_stats(name).state; }
};

TEST_F(Lifecycle, UnknownNamesAreNotFound) {
  expect_error(kNotFound, {"'m'"}, [&] { engine->start_model("m"); });
  expect_error(kNotFound, {"'m'"}, [&] { engine->stop_model("m"); });
  expect_error(kNotFound, {"'m'"}, [&] { engine->release_model("m"); });
  expect_error(kNotFound, {"'m'"}, [&] { submit("m"); });
  expect_error(kNotFound, {"'m'"}, [&] { engine->model_info("m"); });
  expect_error(kNotFound, {"'m'"}, [&] { engine->model_stats("m"); });
  expect_error(kNotFound, {"'m'"}, [&] { engine->clear_prefix_cache("m"); });
  expect_error(ErrorCode::kInvalidArgument, {"name"}, [&] { install(""); });
}

TEST_F(Lifecycle, EachStateAnswersEachCall) {
  install("m");
  EXPECT_EQ(state("m"), ModelState::kInstalled);
  expect_error(kState, {"'m'", "already"}, [&] { install("m"); });
  expect_error(kState, {"not started"}, [&] { submit("m"); });
  expect_error(kState, {"not started"}, [&] { engine->stop_model("m"); });
  engine->clear_prefix_cache("m");

  engine->start_model("m");
  EXPECT_EQ(state("m"), ModelState::kRunning);
  expect_error(kState, {"running"}, [&] { engine->start_model("m"); });
  EXPECT_EQ(read_all(submit("m", {1, 2}, 5).results()).token_ids, fake_greedy({1, 2}, 5));

  engine->stop_model("m");
  EXPECT_EQ(state("m"), ModelState::kStopped);
  expect_error(kState, {"stopped"}, [&] { submit("m"); });
  engine->stop_model("m");
  engine->clear_prefix_cache("m");
  EXPECT_EQ(engine->model_stats("m").finished_requests, 1u);

  engine->release_model("m");
  EXPECT_EQ(control->models_alive, 0);
  EXPECT_TRUE(engine->models().empty());
  expect_error(kNotFound, {"'m'"}, [&] { engine->release_model("m"); });
}

TEST_F(Lifecycle, AStoppedModelStartsAgain) {
  install("m");
  for (int round = 0; round < 3; ++round) {
    engine->start_model("m");
    EXPECT_EQ(engine->model_stats("m").finished_requests, 0u) << "counters since start_model";
    const Ids prompt(40, 3);  // the second round reads the first one's cache
    EXPECT_EQ(read_all(submit("m", prompt, 5).results()).token_ids, fake_greedy(prompt, 5));
    EXPECT_EQ(engine->model_stats("m").prefix_hit_tokens, round == 0 ? 0u : 32u);
    engine->stop_model("m");
  }
}

TEST_F(Lifecycle, AFailedInstallLeavesNothingBehind) {
  control->fail_loading = true;
  expect_error(ErrorCode::kCorruptFile, {}, [&] { install("m"); });
  EXPECT_TRUE(engine->models().empty());
  control->fail_loading = false;
  install("m");
  control->fail_steps(1);
  expect_error(ErrorCode::kDevice, {"injected"}, [&] { engine->start_model("m"); });
  EXPECT_EQ(state("m"), ModelState::kInstalled);
  engine->start_model("m");
  EXPECT_EQ(read_all(submit("m", {1}, 3).results()).token_ids, fake_greedy({1}, 3));
}

TEST_F(Lifecycle, ReleaseWorksInEachState) {
  install("m");
  engine->release_model("m");
  EXPECT_EQ(control->models_alive, 0);
  install("m");
  engine->start_model("m");
  engine->release_model("m");
  EXPECT_EQ(control->models_alive, 0);
  install("m");
  engine->start_model("m");
  Request request = submit("m", {1, 2}, 200);
  engine->release_model("m");
  EXPECT_EQ(control->models_alive, 0);
  const Output out = read_all(request.results());
  EXPECT_TRUE(out.finish_reason == FinishReason::kAbort ||
              out.finish_reason == FinishReason::kLength);
  request.cancel();
  request.wait();
  EXPECT_EQ(request.results().status(), RequestStatus::kFinished);
}

TEST_F(Lifecycle, StopDrains) {
  install("m");
  engine->start_model("m");
  control->hold();
  Request running = submit("m", {1, 2}, 20);
  control->wait_until_held();
  Request waiting = submit("m", {3}, 20);
  EXPECT_FALSE(engine->stop_model("m", 1ms));
  EXPECT_EQ(state("m"), ModelState::kStopping);
  expect_error(kState, {"stopping"}, [&] { submit("m"); });
  expect_error(kState, {"stopping"}, [&] { engine->start_model("m"); });
  std::thread other([&] { engine->stop_model("m"); });
  control->resume();
  engine->stop_model("m");
  other.join();
  EXPECT_EQ(state("m"), ModelState::kStopped);
  EXPECT_EQ(running.results().status(), RequestStatus::kFinished);
  EXPECT_EQ(read_all(running.results()).token_ids, fake_greedy({1, 2}, 20));
  EXPECT_EQ(read_all(waiting.results()).token_ids, fake_greedy({3}, 20));
}

TEST_F(Lifecycle, ReleaseCancelsWhileAnotherThreadDrainsAndAnotherReads) {
  install("m");
  engine->start_model("m");
  control->hold();
  Request request = submit("m", {1, 2}, 200);
  control->wait_until_held();
  std::thread reader([&] {
    const Output out = read_all(request.results());
    EXPECT_EQ(out.finish_reason, FinishReason::kAbort);
    EXPECT_EQ(out.error_code, ErrorCode::kCancelled);
    EXPECT_NE(out.error_message.find("released"), std::string::npos);
  });
  std::thread drainer([&] { engine->stop_model("m"); });
  while (state("m") != ModelState::kStopping) std::this_thread::yield();
  control->step_nanoseconds = kSlowStep;
  std::thread releaser([&] { engine->release_model("m"); });
  control->resume();
  releaser.join();
  drainer.join();
  reader.join();
  EXPECT_EQ(control->models_alive, 0);
}

TEST_F(Lifecycle, OneOfManyReleasesWins) {
  for (int round = 0; round < 20; ++round) {
    install("m");
    engine->start_model("m");
    submit("m");
    std::atomic<int> won{0}, refused{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        try {
          engine->release_model("m");
          ++won;
        } catch (const Error& e) {
          EXPECT_EQ(e.code(), kNotFound);
          ++refused;
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(won, 1);
    EXPECT_EQ(refused, 3);
  }
}

TEST_F(Lifecycle, ObjectsOutliveTheEngine) {
  install("m");
  engine->start_model("m");
  Request done = submit("m", {1}, 3);
  done.wait();
  control->hold();
  Request running = submit("m", {2}, 200);
  control->wait_until_held();
  Request waiting = submit("m", {3}, 200);
  std::thread reader([&] { EXPECT_TRUE(read_all(waiting.results()).finished); });
  control->step_nanoseconds = kSlowStep;
  std::thread destroyer([&] { engine.reset(); });
  control->resume();
  destroyer.join();
  reader.join();
  EXPECT_EQ(control->models_alive, 0);
  EXPECT_EQ(read_all(done.results()).token_ids, fake_greedy({1}, 3));
  EXPECT_EQ(read_all(running.results()).finish_reason, FinishReason::kAbort);
  for (Request& request : std::vector<Request>{done, running, waiting}) {
    request.cancel();
    request.wait();
    ResultQueue queue = request.results();
    EXPECT_TRUE(queue.get().finished);
    EXPECT_EQ(queue.status(), RequestStatus::kFinished);
    int calls = 0;
    queue.on_output([&] { ++calls; });
    EXPECT_EQ(calls, 0) << "the last output has been taken";
  }
}

TEST_F(Lifecycle, TwoModelsRunSideBySide) {
  install("a");
  install("b");
  EXPECT_EQ(engine->models(), (std::vector<std::string>{"a", "b"}));
  engine->start_model("a");
  engine->start_model("b");
  std::vector<Request> requests;
  for (int32_t i = 0; i < 20; ++i) requests.push_back(submit(i % 2 ? "a" : "b", {i}, 20));
  engine->stop_model("a");
  expect_error(kState, {"'a'", "stopped"}, [&] { submit("a"); });
  requests.push_back(submit("b", {20}, 20));
  for (int32_t i = 0; i <= 20; ++i) {
    EXPECT_EQ(read_all(requests[static_cast<size_t>(i)].results()).token_ids, fake_greedy({i}, 20));
  }
  engine->release_model("a");
  EXPECT_EQ(control->models_alive, 1);
}

TEST_F(Lifecycle, CallbacksCannotStopTheirOwnModelButMayDropTheEngine) {
  install("m");
  engine->start_model("m");
  control->hold();
  Request request = submit("m", {1}, 200);
  std::atomic<bool> called{false};
  request.results().on_output([&] {
    if (called) return;
    expect_error(kState, {"callback"}, [&] { engine->stop_model("m"); });
    expect_error(kState, {"callback"}, [&] { engine->release_model("m"); });
    expect_error(kState, {"callback"}, [&] { engine->start_model("m"); });
    engine->clear_prefix_cache("m");
    engine.reset();  // as a garbage collector might, on the loop's own thread
    called = true;
  });
  control->resume();
  request.wait();
  EXPECT_EQ(request.results().get().finish_reason, FinishReason::kAbort);
  while (control->models_alive != 0) std::this_thread::yield();
  EXPECT_TRUE(called);
}

TEST_F(Lifecycle, StartAndStopRaceWithSubmits) {
  install("m");
  std::atomic<bool> done{false};
  std::atomic<int> accepted{0}, finished{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back([&] {
      while (!done) {
        try {
          Request request = submit("m", {1}, 3);
          ++accepted;
          EXPECT_EQ(read_all(request.results()).token_ids, fake_greedy({1}, 3));
          ++finished;
        } catch (const Error& e) {
          EXPECT_EQ(e.code(), kState) << e.what();
        }
      }
    });
  }
  for (int round = 0; round < 30 || accepted == 0; ++round) {
    engine->start_model("m");
    std::this_thread::sleep_for(1ms);
    engine->clear_prefix_cache("m");
    engine->stop_model("m");
  }
  done = true;
  for (auto& client : clients) client.join();
  EXPECT_EQ(accepted, finished) << "what was accepted has been drained";
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace headrace
