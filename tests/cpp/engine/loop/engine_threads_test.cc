// The engine under many threads: models that come and go, waiters of every kind, thousands of
// queues, and no work where there is nothing to do.

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "engine/engine_access.h"
#include "fakes/fake_engine.h"
#include "headrace/output_selector.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using testing::fake_greedy;
using testing::fake_loader;
using testing::FakeControl;
using testing::FakeEngine;
using testing::greedy;
using testing::read_all;
using Ids = std::vector<int32_t>;

void run_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (auto& thread : threads) thread.join();
}

unsigned random_seed() {
  return static_cast<unsigned>(::testing::UnitTest::GetInstance()->random_seed());
}

struct EngineThreads : ::testing::Test {
  std::shared_ptr<FakeControl> control = std::make_shared<FakeControl>();
  std::unique_ptr<Engine> engine = internal::EngineAccess::make({}, fake_loader(control));

  void start(const std::string& name) {
    engine->install_model(name, FakeEngine::default_options());
    engine->start_model(name);
  }
  Request submit(const std::string& name, Ids prompt, int32_t max_tokens) {
    RequestOptions options;
    options.prompt_token_ids = std::move(prompt);
    options.sampling = greedy(max_tokens);
    return engine->submit(name, options);
  }
};

TEST_F(EngineThreads, SixtyFourOfThemSubmitTwoThousandRequestsToTwoModels) {
  start("a");
  start("b");
  std::atomic<int> finished{0}, cancelled{0};
  run_threads(64, [&](int thread) {
    const int count = thread < 16 ? 32 : 31;  // 2,000 in all
    OutputSelector selector;
    std::vector<Request> requests;
    for (int32_t i = 0; i < count; ++i) {
      requests.push_back(submit(i % 2 ? "a" : "b", {thread % 50, i}, 1 + i % 7));
      if (i % 3 == 0) selector.add(requests.back().results(), i);
      if (i % 5 == 4) requests.back().cancel();
    }
    for (int32_t i = 0; i < count; ++i) {
      const Output out = read_all(requests[static_cast<size_t>(i)].results());
      EXPECT_EQ(out.token_ids,
                fake_greedy({thread % 50, i}, static_cast<int32_t>(out.token_ids.size())));
      ++(out.finish_reason == FinishReason::kLength ? finished : cancelled);
    }
    EXPECT_TRUE(selector.wait(60s));
  });
  EXPECT_EQ(finished + cancelled, 2000);
  EXPECT_GE(finished, 1600);
  for (const char* name : {"a", "b"}) {
    const ModelStats stats = engine->model_stats(name);
    EXPECT_EQ(stats.free_kv_blocks, stats.total_kv_blocks);
    EXPECT_EQ(stats.running_requests + stats.waiting_requests, 0);
  }
}

TEST_F(EngineThreads, ModelsComeAndGoInAnyOrder) {
  const unsigned seed = random_seed();
  SCOPED_TRACE(seed);
  std::atomic<int> done{0};
  run_threads(8, [&](int thread) {
    std::mt19937 random(seed + static_cast<unsigned>(thread));
    const auto pick = [&](int below) { return static_cast<int>(random() % unsigned(below)); };
    std::vector<Request> requests;
    for (int i = 0; i < 150; ++i) {
      const std::string name = pick(2) ? "a" : "b";
      try {
        switch (pick(8)) {
          case 0:
            engine->install_model(name, FakeEngine::default_options());
            break;
          case 1:
          case 2:
            engine->start_model(name);
            break;
          case 3:
            engine->stop_model(name, std::chrono::microseconds(pick(500)));
            break;
          case 4:
            engine->release_model(name);
            break;
          case 5:
            engine->clear_prefix_cache(name);
            break;
          default:
            requests.push_back(submit(name, {pick(50)}, 1 + pick(20)));
            if (pick(2)) requests.back().cancel();
        }
        ++done;
      } catch (const Error& error) {
        EXPECT_TRUE(error.code() == ErrorCode::kNotFound ||
                    error.code() == ErrorCode::kInvalidState)
            << error.what();
      }
    }
    // A model that stays installed goes on with them; a released one has cancelled them.
    for (Request& request : requests) EXPECT_TRUE(read_all(request.results()).finished);
  });
  EXPECT_GT(done, 0);
  engine.reset();
  EXPECT_EQ(control->models_alive, 0);
}

TEST_F(EngineThreads, WaitersOfEveryKindLearnOfTheEnginesEnd) {
  start("m");
  control->hold();
  std::vector<Request> requests;
  for (int32_t i = 0; i < 12; ++i) requests.push_back(submit("m", {i}, 200));
  control->wait_until_held();
  std::atomic<int> waiting{0};
  std::thread waiters([&] {
    run_threads(12, [&](int i) {
      Request request = requests[static_cast<size_t>(i)];
      ++waiting;
      if (i % 3 == 0) {
        EXPECT_TRUE(read_all(request.results()).finished);
      } else if (i % 3 == 1) {
        request.wait();
      } else {
        OutputSelector selector;
        selector.add(request.results(), i, OutputSelector::Until::kFinished);
        EXPECT_TRUE(selector.wait(std::nullopt));
      }
      EXPECT_EQ(request.results().finish_reason(), FinishReason::kAbort);
    });
  });
  while (waiting < 12) std::this_thread::yield();
  std::this_thread::sleep_for(5ms);
  control->step_nanoseconds = 20'000'000;  // the end comes before 200 of these are over
  std::thread destroyer([&] { engine.reset(); });
  control->resume();
  destroyer.join();
  waiters.join();
  EXPECT_EQ(control->models_alive, 0);
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

TEST_F(EngineThreads, TenThousandQueuesThatNothingHappensToCostNothing) {
  start("m");
  control->hold();
  std::vector<Request> requests;
  OutputSelector selector;
  for (int32_t i = 0; i < 10000; ++i) {
    requests.push_back(submit("m", {i % 50}, 2));
    selector.add(requests.back().results(), i);
  }
  control->wait_until_held();
  std::vector<std::thread> waiting;
  for (int i = 0; i < 16; ++i) {
    waiting.emplace_back([&, i] {
      ResultQueue queue = requests[static_cast<size_t>(i)].results();
      read_all(queue);
    });
  }
  waiting.emplace_back([&] { selector.wait(std::nullopt); });
  std::this_thread::sleep_for(100ms);  // all of them sleep now
  const double before = cpu_seconds();
  const auto start = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(1s);
  const double share =
      (cpu_seconds() - before) /
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_LT(share, 0.01);
  control->resume();
  for (Request& request : requests) request.wait();
  for (auto& thread : waiting) thread.join();
}

}  // namespace
}  // namespace headrace
