// Requests under a constraint, next to others.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <numeric>
#include <random>
#include <string>
#include <thread>

#include "cpp/engine/expect_error.h"
#include "fakes/fake_constraint.h"
#include "fakes/fake_engine.h"

namespace headrace {
namespace {

using testing::fake_greedy;
using testing::FakeConstraint;
using testing::FakeEngine;
using testing::Following;
using testing::read_all;
using Ids = std::vector<int32_t>;

const int32_t kVocab = testing::FakeShape{}.vocab_size;
constexpr int32_t kEos = 0;

Ids all_tokens() {
  Ids out(kVocab);
  std::iota(out.begin(), out.end(), 0);
  return out;
}

/// `count` tokens of `tokens`, then the end.
std::shared_ptr<FakeConstraint> exactly(size_t count, Ids tokens) {
  return FakeConstraint::make([=](std::span<const int32_t> output) {
    return output.size() < count ? Following{tokens, false} : Following{{}, true};
  });
}

/// Any number of `tokens`, and the end after any `least` of them.
std::shared_ptr<FakeConstraint> at_least(size_t least, Ids tokens) {
  return FakeConstraint::make(
      [=](std::span<const int32_t> output) { return Following{tokens, output.size() >= least}; });
}

RequestOptions under(std::shared_ptr<TokenConstraint> constraint) {
  RequestOptions options;
  options.constraint = std::move(constraint);
  return options;
}

Output run(FakeEngine& fake, std::shared_ptr<TokenConstraint> constraint,
           SamplingParams sampling = {.temperature = 0}, Ids prompt = {1, 2}) {
  return read_all(fake.submit(std::move(prompt), std::move(sampling), under(constraint)).results());
}

void expect_stopped(const Output& out, size_t tokens, int32_t stop_token) {
  EXPECT_EQ(out.finish_reason, FinishReason::kStop) << out.error_message;
  EXPECT_EQ(out.token_ids.size(), tokens);
  EXPECT_EQ(out.stop_token, stop_token);
}

TEST(EngineGuided, TokensAreAllowedOnesAndTheEndIsAnEos) {
  FakeEngine fake;
  for (int32_t seed = 0; seed < 20; ++seed) {
    const Output out = run(fake, exactly(7, {11, 40, 49}), {.seed = uint64_t(seed)}, {seed + 1});
    expect_stopped(out, 8, kEos);
    for (size_t i = 0; i < 7; ++i) {
      EXPECT_TRUE(out.token_ids[i] == 11 || out.token_ids[i] == 40 || out.token_ids[i] == 49);
    }
    EXPECT_EQ(out.token_ids.back(), kEos);
  }
}

TEST(EngineGuided, ForcedTokensComeOut) {
  FakeEngine fake;
  const Ids wanted = {5, 4, 3, 2, 31, 32, 33};
  const auto spell = FakeConstraint::make([&](std::span<const int32_t> output) {
    return output.size() < wanted.size() ? Following{{wanted[output.size()]}, false}
                                         : Following{{}, true};
  });
  const Output out = run(fake, spell, {.temperature = 5.0f, .max_tokens = 7});
  EXPECT_EQ(out.token_ids, wanted);
  EXPECT_EQ(out.finish_reason, FinishReason::kLength);
}

TEST(EngineGuided, EosComesOnlyWhereTheOutputMayEnd) {
  FakeEngine fake;
  for (int32_t i = 1; i < 30; ++i) {
    const Output out = run(fake, at_least(6, all_tokens()),
                           {.temperature = 3.0f, .seed = static_cast<uint64_t>(i)}, {i});
    const bool ends = out.token_ids.back() == kEos;  // the 255th and last token may be one, too
    ASSERT_EQ(out.finish_reason, ends ? FinishReason::kStop : FinishReason::kLength);
    EXPECT_TRUE(ends || out.token_ids.size() == 255);
    for (size_t k = 0; k < 6; ++k) EXPECT_NE(out.token_ids.at(k), kEos);
  }
}

TEST(EngineGuided, WithoutEosACompleteOutputStopsByItself) {
  FakeEngine fake;
  expect_stopped(run(fake, exactly(5, {7, 8}), {.temperature = 0, .ignore_eos = true}), 5, -1);
  // Where it may go on, it goes on.
  const Output out = run(fake, at_least(2, {7, 8}), {.max_tokens = 20, .ignore_eos = true});
  EXPECT_EQ(out.finish_reason, FinishReason::kLength);
  EXPECT_EQ(out.token_ids.size(), 20u);
}

TEST(EngineGuided, MinTokensDelaysTheEndButCannotStretchACompleteOutput) {
  FakeEngine fake;
  for (int32_t i = 1; i < 20; ++i) {
    const Output out = run(fake, at_least(1, {7, 8}), {.temperature = 9.0f, .min_tokens = 9}, {i});
    EXPECT_GE(out.token_ids.size(), 9u);
    for (size_t k = 0; k < 9; ++k) EXPECT_NE(out.token_ids.at(k), kEos);
  }
  expect_stopped(run(fake, exactly(3, {7, 8}), {.temperature = 0, .min_tokens = 9}), 3, -1);
}

TEST(EngineGuided, AnEmptyOutputMayBeComplete) {
  FakeEngine fake;
  expect_stopped(run(fake, exactly(0, {})), 1, kEos);
  const Output out =
      run(fake, exactly(0, {}), {.ignore_eos = true, .prompt_logprobs = 1}, {1, 2, 3});
  expect_stopped(out, 0, -1);
  EXPECT_EQ(out.prompt_logprobs.size(), 2u);
}

TEST(EngineGuided, StopTokensEndItWhereItMayEndAndWhereTheyAreText) {
  FakeEngine fake;
  const SamplingParams stop_9{.temperature = 0, .ignore_eos = true, .stop_token_ids = {9}};
  expect_stopped(run(fake, exactly(4, {7}), stop_9), 5, 9);
  expect_stopped(run(fake, exactly(4, {9}), stop_9), 1, 9);
  SamplingParams later = stop_9;
  later.min_tokens = 3;
  const auto any = FakeConstraint::make([](std::span<const int32_t> output) {
    return Following{output.size() < 3 ? Ids{7, 9} : Ids{9}, false};
  });
  expect_stopped(run(fake, any, later), 4, 9);
}

TEST(EngineGuided, MaxTokensCutsIt) {
  FakeEngine fake;
  const Output out = run(fake, exactly(50, {7, 8}), {.max_tokens = 12});
  EXPECT_EQ(out.finish_reason, FinishReason::kLength);
  EXPECT_EQ(out.token_ids.size(), 12u);
}

TEST(EngineGuided, TheConstraintWinsOverBans) {
  FakeEngine fake;
  const Output out = run(fake, exactly(3, {7}), {.temperature = 0, .bad_words = {{7}}});
  EXPECT_EQ(out.token_ids, (Ids{7, 7, 7, kEos}));
  EXPECT_EQ(run(fake, exactly(3, {7, 8}), {.temperature = 0, .bad_words = {{7}}}).token_ids,
            (Ids{8, 8, 8, kEos}));
}

void expect_failed(const Output& out, ErrorCode code, const std::string& part, size_t tokens) {
  EXPECT_EQ(out.finish_reason, FinishReason::kError);
  EXPECT_EQ(out.error_code, code);
  EXPECT_NE(out.error_message.find(part), std::string::npos) << out.error_message;
  EXPECT_EQ(out.token_ids.size(), tokens);
}

class BadStart final : public TokenConstraint {
 public:
  explicit BadStart(bool throws) : throws_(throws) {}
  std::unique_ptr<TokenMatcher> start() const override {
    if (throws_) throw 1;
    return nullptr;
  }

 private:
  const bool throws_;
};

TEST(EngineGuided, AFailingConstraintEndsItsRequestAlone) {
  FakeEngine fake;
  const SamplingParams plain{.temperature = 0, .max_tokens = 100, .ignore_eos = true};
  Request before = fake.submit({3}, plain);
  const auto failing = FakeConstraint::make([](std::span<const int32_t> output) {
    if (output.size() == 4) throw Error(ErrorCode::kLimitExceeded, "too many states");
    return Following{{7, 8}, false};
  });
  expect_failed(run(fake, failing), ErrorCode::kLimitExceeded, "too many states", 4);
  const auto stuck = FakeConstraint::make([](std::span<const int32_t> output) {
    return output.size() < 2 ? Following{{7}, false} : Following{};
  });
  expect_failed(run(fake, stuck), ErrorCode::kInvalidArgument, "no token after 2", 2);
  expect_failed(
      run(fake, exactly(3, {9}), {.temperature = 0, .min_tokens = 9, .stop_token_ids = {9}}),
      ErrorCode::kInvalidArgument, "min_tokens", 0);
  // Only what the vocabulary has counts.
  expect_failed(run(fake, exactly(3, {kVocab, kVocab + 1})), ErrorCode::kInvalidArgument,
                "no token after 0", 0);
  expect_failed(run(fake, std::make_shared<BadStart>(true)), ErrorCode::kInternal, "unknown", 0);
  expect_failed(run(fake, std::make_shared<BadStart>(false)), ErrorCode::kInvalidArgument,
                "no matcher", 0);
  EXPECT_EQ(read_all(before.results()).token_ids, fake_greedy({3}, 100));
  const ModelStats stats = fake.engine->model_stats("m");
  EXPECT_EQ(stats.free_kv_blocks, stats.total_kv_blocks);
  EXPECT_EQ(stats.finished_requests, 7u);
  fake.engine->release_model("m");  // the thread that computed its last mask has let go of it then
  EXPECT_EQ(failing->alive, 0);
}

/// Allows a few tokens that depend on the whole output.
std::shared_ptr<FakeConstraint> hashed(uint32_t key, size_t length) {
  return FakeConstraint::make([=](std::span<const int32_t> output) {
    uint32_t hash = key;
    for (const int32_t token : output) hash = (hash ^ static_cast<uint32_t>(token)) * 16777619u;
    Ids tokens;
    for (uint32_t i = 0; i < 1 + hash % 5; ++i) {
      tokens.push_back(static_cast<int32_t>(1 + (hash / 7 + 11 * i) % (kVocab - 1)));
    }
    return output.size() < length ? Following{tokens, false} : Following{{}, true};
  });
}

TEST(EngineGuided, NeighboursAndPreemptionChangeNothing) {
  const auto seed = static_cast<uint32_t>(std::random_device{}());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  ModelOptions options = FakeEngine::default_options();
  options.num_kv_blocks = 20;
  constexpr int kRequests = 24;
  std::vector<Ids> alone;
  const auto submit = [](FakeEngine& fake, int i) {
    SamplingParams sampling{.temperature = 2.0f, .seed = uint64_t(i), .max_tokens = 80};
    const Ids prompt(static_cast<size_t>(1 + i % 7 * 9), i + 1);
    if (i % 3 == 0) return fake.submit(prompt, sampling);
    return fake.submit(prompt, sampling, under(hashed(static_cast<uint32_t>(i), 60)));
  };
  for (int i = 0; i < kRequests; ++i) {
    FakeEngine fake(options);
    alone.push_back(read_all(submit(fake, i).results()).token_ids);
  }
  int64_t preemptions = 0;
  for (int round = 0; round < 3; ++round) {
    FakeEngine fake(options);
    std::vector<int> order(kRequests);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<std::pair<int, Request>> running;
    for (const int i : order) running.emplace_back(i, submit(fake, i));
    for (auto& [i, request] : running) {
      EXPECT_EQ(read_all(request.results()).token_ids, alone[static_cast<size_t>(i)]) << i;
    }
    preemptions += static_cast<int64_t>(fake.engine->model_stats("m").preemptions);
  }
  EXPECT_GT(preemptions, 0);
}

TEST(EngineGuided, TheLoopWaitsForALateMaskOnly) {
  FakeEngine fake;
  expect_stopped(run(fake, exactly(3, {7})), 4, kEos);
  const double before = fake.engine->model_stats("m").mask_wait_seconds;
  double now = before;
  // On a busy machine the loop may be so late that a mask is not: then a later one is tried.
  for (int delay = 5; now == before && delay < 1000; delay *= 4) {
    const auto slow = FakeConstraint::make([delay](std::span<const int32_t> output) {
      std::this_thread::sleep_for(std::chrono::milliseconds(delay));
      return output.size() < 5 ? Following{{7, 8}, false} : Following{{}, true};
    });
    expect_stopped(run(fake, slow), 6, kEos);
    now = fake.engine->model_stats("m").mask_wait_seconds;
  }
  EXPECT_GT(now, before);
}

/// Computes until it is told to stop.
class EndlessMatcher final : public TokenMatcher {
 public:
  bool next(std::span<uint32_t>) override {
    while (!interrupted_) {
    }
    throw Error(ErrorCode::kLimitExceeded, "interrupted");
  }
  void append(int32_t) override {}
  void interrupt() noexcept override { interrupted_ = true; }

 private:
  std::atomic<bool> interrupted_{false};
};

class Endless final : public TokenConstraint {
 public:
  std::unique_ptr<TokenMatcher> start() const override {
    return std::make_unique<EndlessMatcher>();
  }
};

TEST(EngineGuided, AMaskThatTakesForEverIsInterrupted) {
  FakeEngine fake;
  Request neighbour = fake.submit({3}, {.temperature = 0, .max_tokens = 30, .ignore_eos = true});
  expect_failed(run(fake, std::make_shared<Endless>()), ErrorCode::kLimitExceeded, "interrupted",
                0);
  EXPECT_EQ(read_all(neighbour.results()).token_ids, fake_greedy({3}, 30));
}

TEST(EngineGuided, CancelledWhileItsMaskIsBeingComputed) {
  FakeEngine fake;
  std::promise<void> begun, go;
  const auto blocking =
      FakeConstraint::make([&, gate = go.get_future().share()](std::span<const int32_t> output) {
        if (output.empty()) {
          begun.set_value();
          gate.wait();
        }
        return Following{{7}, false};
      });
  Request request = fake.submit({1}, {.temperature = 0}, under(blocking));
  begun.get_future().wait();
  request.cancel();
  go.set_value();
  const Output out = read_all(request.results());
  EXPECT_EQ(out.finish_reason, FinishReason::kAbort);
  fake.engine->stop_model("m");
  fake.engine->release_model("m");
  EXPECT_EQ(blocking->alive, 0);
}

TEST(EngineGuided, ReleaseAndFailuresLetGoOfEveryMatcher) {
  const auto endless = at_least(1000, all_tokens());
  for (int round = 0; round < 20; ++round) {
    FakeEngine fake;
    std::vector<Request> requests;
    for (int32_t i = 1; i < 20; ++i) {
      requests.push_back(fake.submit({i}, {.temperature = 1}, under(endless)));
    }
    if (round % 3 == 1) fake.control->fail_steps(1);
    if (round % 3 == 2) requests.front().wait();
    fake.engine->release_model("m");
    for (Request& request : requests) request.wait();
    EXPECT_EQ(endless->alive, 0);
  }
}

TEST(EngineGuided, OneConstraintServesManyThreads) {
  FakeEngine fake;
  const auto shared = hashed(5, 30);
  const Output expected = run(fake, shared, {.seed = 3});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        Request request = fake.submit({1, 2}, {.seed = 3}, under(shared));
        if ((i + t) % 4 == 0) {
          request.cancel();
          request.wait();
        } else {
          EXPECT_EQ(read_all(request.results()).token_ids, expected.token_ids);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  fake.engine.reset();
  EXPECT_EQ(shared->alive, 0);
}

}  // namespace
}  // namespace headrace
