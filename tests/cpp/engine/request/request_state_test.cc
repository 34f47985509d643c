#include "engine/request/request_state.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace headrace::internal {
namespace {

using namespace std::chrono_literals;
using Ids = std::vector<int32_t>;

std::shared_ptr<RequestState> make_state() { return std::make_shared<RequestState>("r", 1, 3); }

OutputDelta token(int32_t id) {
  OutputDelta delta;
  delta.tokens = {id};
  return delta;
}

OutputDelta last(int32_t id, FinishReason reason = FinishReason::kStop) {
  OutputDelta delta = token(id);
  delta.finish_reason = reason;
  delta.stop_token = id;
  return delta;
}

TEST(RequestState, TakesEverythingSinceTheLastRead) {
  auto state = make_state();
  EXPECT_FALSE(state->get_nowait());
  EXPECT_FALSE(state->get(0ns));
  EXPECT_FALSE(state->get(-1ns));
  state->publish(token(5));
  state->publish(token(6));
  EXPECT_EQ(state->generated_length(), 2u);
  EXPECT_EQ(state->get(std::nullopt)->token_ids, (Ids{5, 6}));
  EXPECT_FALSE(state->get_nowait());
  EXPECT_EQ(state->generated_length(), 2u) << "taken tokens count";
}

TEST(RequestState, AnswersForEverAfterTheEnd) {
  auto state = make_state();
  state->publish(last(7));
  EXPECT_EQ(state->status(), RequestStatus::kFinished);
  const Output out = *state->get_nowait();
  EXPECT_EQ(out.token_ids, (Ids{7}));
  EXPECT_TRUE(out.finished);
  EXPECT_EQ(out.stop_token, 7);
  for (int i = 0; i < 2; ++i) {
    const Output again = *state->get(std::nullopt);
    EXPECT_TRUE(again.finished);
    EXPECT_TRUE(again.token_ids.empty());
    EXPECT_EQ(again.finish_reason, FinishReason::kStop);
    EXPECT_FALSE(state->get_nowait()) << "nothing new";
  }
  state->publish(token(9));
  state->publish(last(9, FinishReason::kError));
  EXPECT_TRUE(state->get(std::nullopt)->token_ids.empty()) << "nothing follows the last output";
  EXPECT_EQ(state->get(std::nullopt)->finish_reason, FinishReason::kStop);
  EXPECT_TRUE(state->wait(std::nullopt));
}

TEST(RequestState, PromptLogprobsComeOnceBeforeTokens) {
  auto state = make_state();
  OutputDelta delta = token(4);
  delta.prompt_logprobs = {{1, -0.5f, 1, {}}, {2, -0.25f, 2, {}}};
  delta.logprobs = {PositionLogprobs{4, -1.0f, 3, {{8, -0.1f}}}};
  state->publish(delta);
  state->publish(token(5));
  const Output out = *state->get_nowait();
  EXPECT_EQ(out.prompt_logprobs.size(), 2u);
  EXPECT_EQ(out.logprobs.size(), 1u);
  EXPECT_EQ(out.logprobs[0].top, (std::vector<std::pair<int32_t, float>>{{8, -0.1f}}));
}

TEST(RequestState, FollowsTheRequestThroughItsStates) {
  auto state = make_state();
  EXPECT_EQ(state->status(), RequestStatus::kWaiting);
  state->note_scheduled(2, 1);
  state->note_prefill();
  EXPECT_EQ(state->status(), RequestStatus::kPrefill);
  state->note_preempted();
  EXPECT_EQ(state->status(), RequestStatus::kWaiting);
  state->note_prefill();
  state->publish(token(1));
  EXPECT_EQ(state->status(), RequestStatus::kGenerating);
  state->note_preempted();
  EXPECT_EQ(state->status(), RequestStatus::kGenerating);
  state->publish(last(2));

  const RequestStats stats = state->stats();
  EXPECT_EQ(stats.prompt_tokens, 3);
  EXPECT_EQ(stats.cached_tokens, 2);
  EXPECT_EQ(stats.host_cached_tokens, 1);
  EXPECT_EQ(stats.generated_tokens, 2);
  EXPECT_EQ(stats.preemptions, 2);
  EXPECT_GT(stats.arrival_time, 1.6e9) << "seconds since 1970";
  EXPECT_LE(stats.arrival_time, stats.first_scheduled_time);
  EXPECT_LE(stats.first_scheduled_time, stats.first_token_time);
  EXPECT_LE(stats.first_token_time, stats.last_token_time);
  EXPECT_LE(stats.last_token_time, stats.finished_time);
}

TEST(RequestState, TokensAreVisibleBeforeTheStatusThatEndsThem) {
  for (int round = 0; round < 200; ++round) {
    auto state = make_state();
    std::thread writer([&] {
      for (int32_t i = 0; i < 5; ++i) state->publish(token(i));
      state->publish(last(5));
    });
    Ids seen;
    for (bool finished = false; !finished;) {  // the polling loop that must never lose a token
      finished = state->status() == RequestStatus::kFinished;
      while (const auto out = state->get_nowait()) {
        seen.insert(seen.end(), out->token_ids.begin(), out->token_ids.end());
      }
    }
    writer.join();
    EXPECT_EQ(seen, (Ids{0, 1, 2, 3, 4, 5}));
  }
}

TEST(RequestState, ManyReadersShareTheTokensAndAllSeeTheEnd) {
  auto state = make_state();
  constexpr int kTokens = 2000;
  std::atomic<int> seen{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (;;) {
        const Output out = *state->get(std::nullopt);
        seen += static_cast<int>(out.token_ids.size());
        if (out.finished) return;
      }
    });
    threads.emplace_back([&] { EXPECT_TRUE(state->wait(std::nullopt)); });
  }
  for (int32_t i = 1; i < kTokens; ++i) state->publish(token(i));
  state->publish(last(0));
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(seen, kTokens);
}

TEST(RequestStateCallback, RunsForNewOutputAndAtOnceForOld) {
  auto state = make_state();
  int calls = 0;
  state->on_output([&] { ++calls; });
  EXPECT_EQ(calls, 0);
  state->publish(token(1));
  EXPECT_EQ(calls, 1);
  int later = 0;
  state->on_output([&] { ++later; });
  EXPECT_EQ(later, 1) << "token 1 has not been taken";
  EXPECT_EQ(calls, 1) << "replaced";
  state->on_output(nullptr);
  state->publish(token(2));
  EXPECT_EQ(later, 1);
}

TEST(RequestStateCallback, MayUseTheQueueFromWithin) {
  auto state = make_state();
  Ids seen;
  bool replaced = false;
  state->on_output([&] {
    if (const auto out = state->get_nowait()) {
      seen.insert(seen.end(), out->token_ids.begin(), out->token_ids.end());
    }
    if (seen.size() == 2) state->on_output([&] { replaced = true; });
  });
  for (int32_t i = 0; i < 4; ++i) state->publish(token(i));
  EXPECT_EQ(seen, (Ids{0, 1}));
  EXPECT_TRUE(replaced);
}

TEST(RequestStateCallback, IsDroppedAfterTheLastOutput) {
  auto state = make_state();
  auto resource = std::make_shared<int>(0);
  state->on_output([resource] { ++*resource; });
  state->publish(last(1));
  EXPECT_EQ(*resource, 1);
  EXPECT_EQ(resource.use_count(), 1);
  state->on_output([resource] { ++*resource; });
  EXPECT_EQ(*resource, 2) << "the last output has not been taken";
  EXPECT_EQ(resource.use_count(), 1);
}

TEST(RequestStateCallback, UnsettingWaitsForARunningCall) {
  auto state = make_state();
  std::atomic<bool> entered{false}, left{false};
  state->on_output([&] {
    entered = true;
    std::this_thread::sleep_for(50ms);
    left = true;
  });
  std::thread writer([&] { state->publish(token(1)); });
  while (!entered) std::this_thread::yield();
  state->on_output(nullptr);
  EXPECT_TRUE(left);
  writer.join();
}

TEST(RequestStateCallback, CallsNeverOverlapAndThrowingHarmsNobody) {
  auto state = make_state();
  std::atomic<int> inside{0}, most{0}, calls{0};
  const auto callback = [&] {
    most = std::max(most.load(), ++inside);
    ++calls;
    std::this_thread::yield();
    --inside;
    throw 7;
  };
  std::atomic<bool> done{false};
  std::thread setter([&] {
    while (!done) {
      state->on_output(callback);
      state->on_output(nullptr);
    }
  });
  for (int32_t i = 0; i < 2000; ++i) state->publish(token(i));
  done = true;
  setter.join();
  state->on_output(callback);
  EXPECT_EQ(most, 1);
  EXPECT_GE(calls, 1);
}

}  // namespace
}  // namespace headrace::internal
