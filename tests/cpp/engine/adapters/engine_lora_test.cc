// Adapters of a running model: names, limits, holds of requests, and the prefix cache.

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "cpp/engine/expect_error.h"
#include "fakes/fake_engine.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using testing::expect_error;
using testing::fake_greedy;
using testing::FakeEngine;
using testing::read_all;

ModelOptions with_loras(int32_t max_loras) {
  ModelOptions options = FakeEngine::default_options();
  options.max_loras = max_loras;
  return options;
}

const std::vector<int32_t> kPrompt = {5, 6, 7};

SamplingParams tokens(int32_t count) {
  return {.temperature = 0, .max_tokens = count, .ignore_eos = true};
}

std::vector<int32_t> greedy(const std::vector<int32_t>& prompt, int32_t count, int32_t rank) {
  return fake_greedy(prompt, count, testing::FakeShape{}.vocab_size, rank);
}

TEST(EngineLora, AMixedBatchGivesEachRequestItsOwnAdapter) {
  FakeEngine fake(with_loras(3));
  for (const int rank : {1, 2, 3}) {
    fake.engine->load_lora("m", "lora" + std::to_string(rank), std::to_string(rank));
  }
  fake.control->hold();
  std::vector<Request> requests;
  for (const int rank : {0, 1, 2, 3, 0, 2}) {
    const std::string name = rank == 0 ? "" : "lora" + std::to_string(rank);
    requests.push_back(fake.submit(kPrompt, tokens(20), {.lora_name = name}));
  }
  fake.control->resume();
  size_t i = 0;
  for (const int rank : {0, 1, 2, 3, 0, 2}) {
    EXPECT_EQ(read_all(requests[i++].results()).token_ids, greedy(kPrompt, 20, rank)) << rank;
  }
}

TEST(EngineLora, NamesAndLimitsAreChecked) {
  FakeEngine fake(with_loras(2));
  Engine& engine = *fake.engine;
  engine.load_lora("m", "a", "1");
  expect_error(ErrorCode::kInvalidState, {"'a' already"}, [&] { engine.load_lora("m", "a", "2"); });
  expect_error(ErrorCode::kInvalidArgument, {"empty"}, [&] { engine.load_lora("m", "", "2"); });
  expect_error(ErrorCode::kNotFound, {"'x'"}, [&] { engine.load_lora("x", "b", "2"); });
  expect_error(ErrorCode::kNotFound, {"'b'"}, [&] { engine.unload_lora("m", "b"); });
  engine.load_lora("m", "b", "2");
  expect_error(ErrorCode::kLimitExceeded, {"2 adapters"}, [&] { engine.load_lora("m", "c", "3"); });
  expect_error(ErrorCode::kNotFound, {"'c'"},
               [&] { fake.submit(kPrompt, {}, {.lora_name = "c"}); });
  engine.unload_lora("m", "a");
  engine.load_lora("m", "c", "3");
  const std::vector<LoraInfo> loras = engine.loras("m");
  ASSERT_EQ(loras.size(), 2u);
  EXPECT_EQ(loras[0].name, "b");
  EXPECT_EQ(loras[1].name, "c");
  EXPECT_EQ(loras[1].path, "3");
  EXPECT_EQ(loras[1].rank, 3);
  EXPECT_EQ(loras[1].live_requests, 0);

  FakeEngine without;
  expect_error(ErrorCode::kLimitExceeded, {"max_loras"},
               [&] { without.engine->load_lora("m", "a", "1"); });
}

TEST(EngineLora, AFolderThatCannotBeReadTakesNoPlace) {
  FakeEngine fake(with_loras(1));
  fake.control->fail_loading = true;
  expect_error(ErrorCode::kCorruptFile, {"injected"},
               [&] { fake.engine->load_lora("m", "a", "1"); });
  fake.control->fail_loading = false;
  EXPECT_TRUE(fake.engine->loras("m").empty());
  fake.engine->load_lora("m", "a", "1");
}

TEST(EngineLora, AreLoadedInEveryStateOfTheModel) {
  FakeEngine fake(with_loras(3));
  fake.engine->stop_model("m");
  fake.engine->load_lora("m", "a", "1");
  fake.engine->start_model("m");
  EXPECT_EQ(read_all(fake.submit(kPrompt, tokens(4), {.lora_name = "a"}).results()).token_ids,
            greedy(kPrompt, 4, 1));
  fake.engine->stop_model("m");
  fake.engine->unload_lora("m", "a");
  fake.engine->load_lora("m", "b", "2");
  fake.engine->release_model("m");
  expect_error(ErrorCode::kNotFound, {"'m'"}, [&] { fake.engine->loras("m"); });
}

/// Submits one request that uses adapter "a", which must then be in use until `end` has ended it.
/// False: the request's timeout passed before its first step.
template <class End>
bool expect_held_until(FakeEngine& fake, RequestOptions options, End end) {
  fake.engine->load_lora("m", "a", "1");
  fake.control->hold();
  options.lora_name = "a";
  Request request = fake.submit(kPrompt, tokens(50), options);
  while (!fake.control->step_waits()) {
    if (!request.wait(1ms)) continue;
    fake.control->resume();
    fake.engine->unload_lora("m", "a");
    return false;
  }
  EXPECT_EQ(fake.engine->loras("m").at(0).live_requests, 1);
  expect_error(ErrorCode::kInvalidState, {"in use by 1 request"},
               [&] { fake.engine->unload_lora("m", "a"); });
  end(request);
  EXPECT_TRUE(request.wait(60s));
  fake.engine->unload_lora("m", "a");  // at once: who sees the end sees the adapter free
  EXPECT_TRUE(fake.engine->loras("m").empty());
  return true;
}

TEST(EngineLora, IsHeldUntilTheRequestFinishes) {
  FakeEngine fake(with_loras(1));
  EXPECT_TRUE(expect_held_until(fake, {}, [&](Request&) { fake.control->resume(); }));
}

TEST(EngineLora, IsHeldUntilTheRequestIsCancelled) {
  FakeEngine fake(with_loras(1));
  EXPECT_TRUE(expect_held_until(fake, {}, [&](Request& request) {
    request.cancel();
    fake.control->resume();
  }));
}

TEST(EngineLora, IsHeldUntilTheRequestsDeadline) {
  FakeEngine fake(with_loras(1));
  for (auto timeout = 20ms; timeout < 60s; timeout *= 2) {
    const bool was_held = expect_held_until(fake, {.timeout = timeout}, [&](Request&) {
      std::this_thread::sleep_for(timeout);
      fake.control->resume();
    });
    if (was_held) return;
  }
  FAIL() << "its first step never began";
}

TEST(EngineLora, IsHeldUntilAFailedStepEndsTheRequest) {
  FakeEngine fake(with_loras(1));
  EXPECT_TRUE(expect_held_until(fake, {}, [&](Request&) {
    fake.control->fail_steps(1);
    fake.control->resume();
  }));
}

TEST(EngineLora, IsHeldUntilTheModelFails) {
  ModelOptions options = with_loras(1);
  options.max_num_seqs = 1;
  FakeEngine fake(options);
  fake.engine->load_lora("m", "a", "1");
  fake.control->hold();
  fake.control->fail_steps(-1);
  std::vector<Request> requests;  // three end with their steps, the last with the model
  for (int i = 0; i < 4; ++i) requests.push_back(fake.submit(kPrompt, {}, {.lora_name = "a"}));
  fake.control->resume();
  for (Request& request : requests) ASSERT_TRUE(request.wait(60s));
  fake.engine->unload_lora("m", "a");
  EXPECT_EQ(fake.engine->model_stats("m").state, ModelState::kFailed);
}

TEST(EngineLora, ARefusedRequestHoldsNothing) {
  FakeEngine fake(with_loras(1));
  fake.engine->load_lora("m", "a", "1");
  expect_error(ErrorCode::kInvalidArgument, {}, [&] { fake.submit({}, {}, {.lora_name = "a"}); });
  fake.engine->stop_model("m");
  expect_error(ErrorCode::kInvalidState, {}, [&] { fake.submit(kPrompt, {}, {.lora_name = "a"}); });
  fake.engine->unload_lora("m", "a");
}

// The fake model throws if a row reads a cached one of another adapter.
TEST(EngineLora, ThePrefixCacheIsKeyedByAdapter) {
  FakeEngine fake(with_loras(2));
  const std::vector<int32_t> prompt(100, 7);
  const auto run = [&](const std::string& lora) {
    Request request = fake.submit(prompt, tokens(8), {.lora_name = lora});
    EXPECT_EQ(read_all(request.results()).token_ids,
              greedy(prompt, 8, lora.empty() ? 0 : fake.engine->loras("m").at(0).rank));
    return request.results().stats().cached_tokens;
  };
  fake.engine->load_lora("m", "a", "1");
  EXPECT_EQ(run(""), 0);
  EXPECT_EQ(run("a"), 0);
  EXPECT_EQ(run("a"), 96);
  EXPECT_EQ(run(""), 96);
  fake.engine->unload_lora("m", "a");
  fake.engine->load_lora("m", "a", "2");  // the same name, other weights
  EXPECT_EQ(run("a"), 0);
  EXPECT_EQ(run("a"), 96);
}

TEST(EngineLora, ReleasingTheModelWhileAdaptersLoadIsSafe) {
  for (int round = 0; round < 20; ++round) {
    FakeEngine fake(with_loras(64));
    std::thread loader([&] {
      for (int i = 1; i < 64; ++i) {
        try {
          fake.engine->load_lora("m", std::to_string(i), std::to_string(i));
          fake.submit(kPrompt, tokens(3), {.lora_name = std::to_string(i)});
        } catch (const Error& e) {
          EXPECT_TRUE(e.code() == ErrorCode::kNotFound || e.code() == ErrorCode::kInvalidState)
              << e.what();
        }
      }
    });
    std::this_thread::sleep_for(std::chrono::microseconds(50 * round));
    fake.engine->release_model("m");
    loader.join();
  }
}

// Many threads load, use, cancel and unload a few names.
TEST(EngineLora, SurvivesThreadsThatLoadUseAndUnload) {
  FakeEngine fake(with_loras(3));
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::vector<std::thread> threads;
  for (unsigned number = 0; number < 4; ++number) {
    threads.emplace_back([&fake, number, seed] {
      std::mt19937 random(seed + number);
      for (int i = 0; i < 150; ++i) {
        const int rank = 1 + static_cast<int>(random() % 5);
        const std::string name = std::to_string(rank);
        try {
          switch (random() % 4) {
            case 0:
              fake.engine->load_lora("m", name, name);
              break;
            case 1:
              fake.engine->unload_lora("m", name);
              break;
            default: {
              const int32_t count = 1 + static_cast<int32_t>(random() % 12);
              Request request = fake.submit(kPrompt, tokens(count), {.lora_name = name});
              if (random() % 3 == 0) request.cancel();
              const Output out = read_all(request.results());
              auto want = greedy(kPrompt, count, rank);
              want.resize(out.token_ids.size());
              EXPECT_EQ(out.token_ids, want);
            }
          }
        } catch (const Error& e) {
          EXPECT_TRUE(e.code() == ErrorCode::kNotFound || e.code() == ErrorCode::kInvalidState ||
                      e.code() == ErrorCode::kLimitExceeded)
              << e.what();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const LoraInfo& lora : fake.engine->loras("m")) {
    EXPECT_EQ(lora.live_requests, 0);
    fake.engine->unload_lora("m", lora.name);
  }
}

}  // namespace
}  // namespace headrace
