// One request's life: output, endings, log-probabilities, statistics.

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <set>
#include <string_view>

#include "fakes/fake_engine.h"
#include "headrace/output_selector.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using testing::fake_greedy;
using testing::FakeEngine;
using testing::greedy;
using testing::read_all;
using Ids = std::vector<int32_t>;

Ids prompt_of(int32_t length, int32_t start = 1) {
  Ids out;
  for (int32_t i = 0; i < length; ++i) out.push_back((start + 7 * i) % 50);
  return out;
}

TEST(EngineRequest, GeneratesWhatTheModelSays) {
  FakeEngine fake;
  for (int32_t length : {1, 15, 16, 17, 63, 64, 65, 200}) {
    const Output out = read_all(fake.submit(prompt_of(length), greedy(20)).results());
    EXPECT_EQ(out.token_ids, fake_greedy(prompt_of(length), 20)) << length;
    EXPECT_EQ(out.finish_reason, FinishReason::kLength);
    EXPECT_EQ(out.error_code, ErrorCode::kOk);
    EXPECT_EQ(out.stop_token, -1);
    EXPECT_EQ(out.stop_sequence, -1);
  }
}

TEST(EngineRequest, StopsAtEosStopTokensAndSequences) {
  FakeEngine fake;
  const Ids prompt = prompt_of(5);
  const Ids all = fake_greedy(prompt, 100);
  const auto before = [&](int32_t token) {
    return Ids(all.begin(), std::find(all.begin(), all.end(), token) + 1);
  };
  ASSERT_NE(std::find(all.begin(), all.end(), 0), all.end()) << "no EOS in this output";
  const Output eos = read_all(fake.submit(prompt, {.temperature = 0, .max_tokens = 100}).results());
  EXPECT_EQ(eos.token_ids, before(0));
  EXPECT_EQ(eos.finish_reason, FinishReason::kStop);
  EXPECT_EQ(eos.stop_token, 0);

  SamplingParams stop = greedy(100);
  stop.stop_token_ids = {all[3]};
  const Output stopped = read_all(fake.submit(prompt, stop).results());
  EXPECT_EQ(stopped.token_ids, before(all[3]));
  EXPECT_EQ(stopped.stop_token, all[3]);
  EXPECT_EQ(stopped.stop_sequence, -1);

  SamplingParams sequence = greedy(100);
  sequence.stop_sequences = {{all[5], all[5], all[5]}, {all[5], all[6]}};
  const Output ended = read_all(fake.submit(prompt, sequence).results());
  EXPECT_EQ(ended.finish_reason, FinishReason::kStop);
  EXPECT_EQ(ended.stop_token, -1);
  EXPECT_EQ(ended.stop_sequence, 1);
  EXPECT_LE(ended.token_ids.size(), 7u);
  EXPECT_TRUE(std::equal(ended.token_ids.end() - 2, ended.token_ids.end(), all.begin() + 5));
}

TEST(EngineRequest, MinTokensMakeTheEndImpossible) {
  FakeEngine fake;
  const Ids prompt = prompt_of(5);
  const Output out = read_all(
      fake.submit(prompt, {.temperature = 0, .max_tokens = 100, .min_tokens = 90}).results());
  EXPECT_GE(out.token_ids.size(), 90u);
  EXPECT_EQ(std::find(out.token_ids.begin(), out.token_ids.begin() + 90, 0),
            out.token_ids.begin() + 90);
}

TEST(EngineRequest, AStopSequenceMayBeginInThePromptAndIgnoresMinTokens) {
  FakeEngine fake;
  const Ids prompt = prompt_of(5);
  SamplingParams params = greedy(20);
  params.min_tokens = 10;
  params.stop_sequences = {{prompt.back(), fake_greedy(prompt, 1)[0]}};
  EXPECT_EQ(read_all(fake.submit(prompt, params).results()).finish_reason, FinishReason::kLength);
  params.stop_sequences_anywhere = true;
  const Output out = read_all(fake.submit(prompt, params).results());
  EXPECT_EQ(out.finish_reason, FinishReason::kStop);
  EXPECT_EQ(out.token_ids.size(), 1u);
}

TEST(EngineRequest, NoNgramComesTwice) {
  FakeEngine fake;
  for (const int32_t n : {1, 2}) {
    SamplingParams params = greedy(40);
    params.no_repeat_ngram_size = n;
    const Ids prompt = {3, 1, 3, 4};
    Ids text = prompt;
    const Output out = read_all(fake.submit(prompt, params).results());
    ASSERT_EQ(out.token_ids.size(), 40u);
    text.insert(text.end(), out.token_ids.begin(), out.token_ids.end());
    std::set<Ids> seen;
    for (size_t end = static_cast<size_t>(n); end <= text.size(); ++end) {
      const auto last = text.begin() + static_cast<ptrdiff_t>(end);
      const bool is_new = seen.emplace(last - n, last).second;
      EXPECT_TRUE(is_new || end <= prompt.size()) << n << "-gram at " << end;
    }
  }
  // Without it this output has pairs that come again, else the above would show nothing.
  const Ids free = fake_greedy({3, 1, 3, 4}, 40);
  std::set<std::pair<int32_t, int32_t>> pairs;
  for (size_t i = 1; i < free.size(); ++i) pairs.emplace(free[i - 1], free[i]);
  EXPECT_LT(pairs.size(), free.size() - 1);
}

TEST(EngineRequest, SeedsDecideDraws) {
  FakeEngine fake;
  const auto run = [&](std::optional<uint64_t> seed) {
    SamplingParams params{.temperature = 1.5f, .seed = seed, .max_tokens = 30, .ignore_eos = true};
    Request request = fake.submit({1, 2, 3}, params);
    return std::pair(request.seed(), read_all(request.results()).token_ids);
  };
  EXPECT_EQ(run(5), run(5));
  EXPECT_EQ(run(5).first, 5u);
  EXPECT_NE(run(5).second, run(6).second);
  const auto chosen = run(std::nullopt);
  EXPECT_NE(chosen.first, run(std::nullopt).first);
  EXPECT_EQ(run(chosen.first).second, chosen.second) << "the picked seed repeats the draws";
}

TEST(EngineRequest, LogprobsComeWithEachToken) {
  FakeEngine fake;
  SamplingParams params = greedy(10);
  params.logprobs = 3;
  const Output out = read_all(fake.submit({4, 5}, params).results());
  ASSERT_EQ(out.logprobs.size(), 10u);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(out.logprobs[i].token, out.token_ids[i]);
    EXPECT_EQ(out.logprobs[i].rank, 1);
    ASSERT_EQ(out.logprobs[i].top.size(), 3u);
    EXPECT_EQ(out.logprobs[i].top[0].first, out.token_ids[i]);
  }
  EXPECT_TRUE(read_all(fake.submit({4, 5}, greedy(3)).results()).logprobs.empty());
}

TEST(EngineRequest, PromptLogprobsAreReadInBoundedCalls) {
  ModelOptions options = FakeEngine::default_options();
  FakeEngine whole(options);
  options.max_num_batched_tokens = 9;
  options.max_prefill_chunk = 5;
  FakeEngine chunked(options, {.max_logit_rows = 3});
  const Ids prompt = prompt_of(40);
  SamplingParams params = greedy(4);
  params.prompt_logprobs = 2;
  params.logprobs = 0;
  const Output a = read_all(whole.submit(prompt, params).results());
  const Output b = read_all(chunked.submit(prompt, params).results());
  ASSERT_EQ(a.prompt_logprobs.size(), 39u);
  ASSERT_EQ(b.prompt_logprobs.size(), 39u);
  for (size_t i = 0; i < 39; ++i) {
    EXPECT_EQ(a.prompt_logprobs[i].token, prompt[i + 1]);
    EXPECT_EQ(a.prompt_logprobs[i].logprob, b.prompt_logprobs[i].logprob);
    EXPECT_EQ(a.prompt_logprobs[i].rank, b.prompt_logprobs[i].rank);
    EXPECT_EQ(a.prompt_logprobs[i].top, b.prompt_logprobs[i].top);
  }
  EXPECT_EQ(a.token_ids, fake_greedy(prompt, 4));
  EXPECT_EQ(a.token_ids, b.token_ids);
  EXPECT_EQ(b.logprobs.size(), 4u);
  EXPECT_EQ(whole.control->most_logit_rows, 8);
  EXPECT_EQ(chunked.control->most_logit_rows, 3);
}

TEST(EngineRequest, PromptLogprobsIgnoreThePrefixCache) {
  FakeEngine fake;
  const Ids prompt = prompt_of(100);
  fake.submit(prompt, greedy(1)).wait();
  SamplingParams params = greedy(1);
  params.prompt_logprobs = 0;
  Request request = fake.submit(prompt, params);
  EXPECT_EQ(read_all(request.results()).prompt_logprobs.size(), 99u);
  EXPECT_EQ(request.results().stats().cached_tokens, 0);
  Request single = fake.submit({3}, params);
  EXPECT_TRUE(read_all(single.results()).prompt_logprobs.empty()) << "one token has none before it";
}

TEST(EngineRequest, AHitReadsTheCacheAndChangesNothing) {
  FakeEngine fake;
  const Ids prompt = prompt_of(100);
  Request cold = fake.submit(prompt, greedy(20));
  const Output first = read_all(cold.results());
  Request warm = fake.submit(prompt, greedy(20));
  EXPECT_EQ(read_all(warm.results()).token_ids, first.token_ids);
  EXPECT_EQ(cold.results().stats().cached_tokens, 0);
  EXPECT_EQ(warm.results().stats().cached_tokens, 96);
  EXPECT_EQ(fake.engine->model_stats("m").prefix_hit_tokens, 96u);

  EXPECT_GT(fake.engine->model_stats("m").cached_kv_blocks, 0);
  fake.engine->clear_prefix_cache("m");
  EXPECT_EQ(fake.engine->model_stats("m").cached_kv_blocks, 0);
  Request again = fake.submit(prompt, greedy(20));
  EXPECT_EQ(read_all(again.results()).token_ids, first.token_ids);
  EXPECT_EQ(again.results().stats().cached_tokens, 0);
}

TEST(EngineRequest, CancelKeepsWhatWasGenerated) {
  FakeEngine fake;
  fake.control->hold();
  Request request = fake.submit({1, 2}, greedy(200));
  ResultQueue queue = request.results();
  fake.control->wait_until_held();
  request.cancel();
  EXPECT_FALSE(request.wait(0ns)) << "returns at once, though a step is under way";
  fake.control->resume();
  const Output out = read_all(queue);
  const Ids& seen = out.token_ids;
  EXPECT_EQ(out.finish_reason, FinishReason::kAbort);
  EXPECT_EQ(out.error_code, ErrorCode::kCancelled);
  EXPECT_EQ(seen, fake_greedy({1, 2}, 1)) << "of the step that was under way";
  EXPECT_EQ(queue.generated_length(), seen.size());
  EXPECT_EQ(fake.engine->model_stats("m").free_kv_blocks, 64);
  request.cancel();
  EXPECT_EQ(queue.get().finish_reason, FinishReason::kAbort);

  Request done = fake.submit({1, 2}, greedy(2));
  done.wait();
  done.cancel();
  EXPECT_EQ(done.results().get().finish_reason, FinishReason::kLength) << "no effect after the end";
}

TEST(EngineRequest, CancelReachesAWaitingRequest) {
  ModelOptions options = FakeEngine::default_options();
  options.max_num_seqs = 1;
  FakeEngine fake(options);
  fake.control->hold();
  Request first = fake.submit({1}, greedy(5));
  fake.control->wait_until_held();
  Request second = fake.submit({2}, greedy(5));
  EXPECT_EQ(fake.engine->model_stats("m").waiting_requests, 1);
  second.cancel();
  fake.control->resume();
  EXPECT_EQ(read_all(second.results()).finish_reason, FinishReason::kAbort);
  EXPECT_EQ(read_all(first.results()).token_ids, fake_greedy({1}, 5));
}

TEST(EngineRequest, AnInterruptedOneKeepsItsTokensAndTheOthersGoOn) {
  for (const OutOfBlocks policy : {OutOfBlocks::kInterruptLongest, OutOfBlocks::kInterruptRandom}) {
    ModelOptions options = FakeEngine::default_options();
    options.num_kv_blocks = 6;  // of 16 tokens: too few for both, enough for either
    options.max_model_len = 96;
    options.out_of_blocks = policy;
    FakeEngine fake(options);
    fake.control->hold();
    const std::vector<Ids> prompts = {{1}, prompt_of(20)};
    std::vector<Output> out;
    {
      Request a = fake.submit(prompts[0], greedy(60)), b = fake.submit(prompts[1], greedy(60));
      fake.control->resume();
      out = {read_all(a.results()), read_all(b.results())};
    }
    const bool second = policy == OutOfBlocks::kInterruptLongest ||
                        out[1].finish_reason == FinishReason::kInterrupted;
    const Output &victim = out[second], &other = out[!second];
    EXPECT_EQ(victim.finish_reason, FinishReason::kInterrupted);
    EXPECT_EQ(victim.error_code, ErrorCode::kOutOfMemory);
    EXPECT_NE(victim.error_message.find("out_of_blocks"), std::string::npos);
    ASSERT_GT(victim.token_ids.size(), 10u);
    ASSERT_LT(victim.token_ids.size(), 60u);
    const auto count = static_cast<int32_t>(victim.token_ids.size());
    EXPECT_EQ(victim.token_ids, fake_greedy(prompts[second], count));
    EXPECT_EQ(other.finish_reason, FinishReason::kLength);
    EXPECT_EQ(other.token_ids, fake_greedy(prompts[!second], 60));
    const ModelStats stats = fake.engine->model_stats("m");
    EXPECT_EQ(stats.interruptions, 1u);
    EXPECT_EQ(stats.preemptions, 0u);
    EXPECT_EQ(stats.finished_requests, 2u);
    EXPECT_EQ(stats.free_kv_blocks, 6);
  }
}

TEST(EngineRequest, ATimeoutEndsItWithAnError) {
  FakeEngine fake;
  RequestOptions options;
  options.timeout = 0ns;
  const Output at_once = read_all(fake.submit({1}, greedy(5), options).results());
  EXPECT_EQ(at_once.finish_reason, FinishReason::kError);
  EXPECT_EQ(at_once.error_code, ErrorCode::kDeadlineExceeded);
  EXPECT_TRUE(at_once.token_ids.empty());
  EXPECT_NE(at_once.error_message.find("timeout"), std::string::npos);

  // On a busy machine the timeout may pass before the first step: then a longer one is tried.
  Output later;
  for (auto timeout = 20ms; later.token_ids.empty() && timeout < 60s; timeout *= 2) {
    options.timeout = timeout;
    fake.control->hold();
    Request running = fake.submit({1}, greedy(200), options);
    while (!fake.control->step_waits() && !running.wait(1ms)) {
    }
    std::this_thread::sleep_for(timeout);
    fake.control->resume();
    later = read_all(running.results());
    ASSERT_EQ(later.error_code, ErrorCode::kDeadlineExceeded);
  }
  EXPECT_EQ(later.token_ids.size(), 1u) << "of the step that was under way";
  EXPECT_EQ(fake.engine->model_stats("m").free_kv_blocks, 64);

  options.timeout = std::chrono::nanoseconds::max();
  EXPECT_EQ(read_all(fake.submit({1}, greedy(5), options).results()).token_ids.size(), 5u);
}

TEST(EngineRequest, LowerPriorityNumbersRunFirst) {
  ModelOptions options = FakeEngine::default_options();
  options.max_num_seqs = 1;
  FakeEngine fake(options);
  fake.control->hold();
  Request first = fake.submit({1}, greedy(3));
  fake.control->wait_until_held();
  Request late = fake.submit({2}, greedy(3), {.priority = 5});
  Request early = fake.submit({3}, greedy(3), {.priority = -5});
  Request same = fake.submit({4}, greedy(3), {.priority = 5});
  fake.control->resume();
  for (const Request& request : {first, late, early, same}) request.wait();
  EXPECT_LT(early.results().stats().finished_time, late.results().stats().first_scheduled_time);
  EXPECT_LT(late.results().stats().finished_time, same.results().stats().first_scheduled_time);
}

TEST(EngineRequest, IdsAreTheCallersOrMade) {
  FakeEngine fake;
  EXPECT_EQ(fake.submit({1}, greedy(1), {.request_id = "mine"}).id(), "mine");
  const std::string made = fake.submit({1}, greedy(1)).id();
  EXPECT_FALSE(made.empty());
  EXPECT_NE(made, fake.submit({1}, greedy(1)).id());
}

TEST(EngineRequest, StatisticsAreTrue) {
  FakeEngine fake;
  Request request = fake.submit(prompt_of(100), greedy(10));
  EXPECT_TRUE(request.wait(60s));
  const RequestStats stats = request.results().stats();
  EXPECT_EQ(stats.prompt_tokens, 100);
  EXPECT_EQ(stats.generated_tokens, 10);
  EXPECT_LE(stats.arrival_time, stats.first_scheduled_time);
  EXPECT_LE(stats.first_scheduled_time, stats.first_token_time);
  EXPECT_LT(stats.first_token_time, stats.last_token_time);
  EXPECT_LE(stats.last_token_time, stats.finished_time);
  EXPECT_EQ(request.results().generated_length(), 10u);
  EXPECT_EQ(request.results().status(), RequestStatus::kFinished);
  const ModelStats model = fake.engine->model_stats("m");
  EXPECT_EQ(model.state, ModelState::kRunning);
  EXPECT_EQ(model.prompt_tokens, 100u);
  EXPECT_EQ(model.generated_tokens, 10u);
  EXPECT_EQ(model.finished_requests, 1u);
  EXPECT_EQ(model.steps, 11u) << "100 prompt tokens take two steps of 64";
  EXPECT_EQ(model.prefix_miss_tokens, 100u);
  EXPECT_EQ(model.total_kv_blocks, 64);
  EXPECT_EQ(model.free_kv_blocks, 64);
  EXPECT_EQ(model.running_requests, 0);
  EXPECT_GT(model.busy_seconds, 0);
  EXPECT_GT(model.memory_bytes, 0u);
  EXPECT_GE(model.memory_pool_bytes, model.memory_bytes);
}

TEST(EngineRequest, CallbacksMaySubmit) {
  FakeEngine fake;
  Request first = fake.submit({1}, greedy(1));
  std::vector<Request> more;
  std::atomic<bool> submitted{false};
  first.results().on_output([&] {
    if (submitted) return;
    more.push_back(fake.submit({2}, greedy(3)));
    submitted = true;
  });
  while (!submitted) std::this_thread::yield();
  EXPECT_EQ(read_all(more.at(0).results()).token_ids, fake_greedy({2}, 3));
}

// Waiting for the engine's threads, which a forked child doesn't have, would never end.
TEST(EngineRequest, BelongsToItsProcess) {
  FakeEngine fake;
  Request request = fake.submit(prompt_of(5), greedy(100'000));
  ResultQueue queue = request.results();
  auto selector = std::make_unique<OutputSelector>();
  selector->add(queue, 1);
  const std::vector<std::function<void()>> calls = {
      [&] { request.wait(); },
      [&] { request.wait(1s); },
      [&] { request.cancel(); },
      [&] { queue.get(); },
      [&] { queue.get(1s); },
      [&] { queue.get_nowait(); },
      [&] { queue.status(); },
      [&] { queue.finish_reason(); },
      [&] { queue.generated_length(); },
      [&] { queue.stats(); },
      [&] { queue.on_output({}); },
      [&] { selector->add(queue, 2); },
      [&] { selector->remove(1); },
      [&] { selector->wait(std::nullopt); },
      [&] { selector->take(); },
      [&] { selector->ready_fd(); },
      [&] { fake.engine->models(); },
      [&] { fake.submit(prompt_of(5), greedy(5)); },
      [&] { fake.engine->install_model("other", {}); },
  };
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);  // rather than hang
    for (size_t i = 0; i < calls.size(); ++i) {
      try {
        calls[i]();
        _exit(static_cast<int>(i) + 1);
      } catch (const Error& error) {
        const bool right = error.code() == ErrorCode::kInvalidState &&
                           std::string_view(error.what()).find("fork") != std::string_view::npos;
        if (!right) _exit(static_cast<int>(i) + 101);
      }
    }
    selector.reset();
    fake.engine.reset();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the number of the call, from 1, or from 101";
  request.cancel();
  request.wait();
}

}  // namespace
}  // namespace headrace
