// Many requests at once: none lost, none mixed up, none dependent on its neighbours.

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <random>
#include <thread>

#include "fakes/fake_constraint.h"
#include "fakes/fake_engine.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using testing::fake_greedy;
using testing::FakeEngine;
using testing::read_all;
using Ids = std::vector<int32_t>;

/// A constraint that allows every `step`th token.
std::shared_ptr<TokenConstraint> every(int32_t step) {
  return testing::FakeConstraint::make([step](std::span<const int32_t>) {
    testing::Following out;
    for (int32_t token = 0; token < 50; token += step) out.tokens.push_back(token);
    return out;
  });
}

struct Job {
  Ids prompt;
  SamplingParams sampling;
  int32_t priority = 0;
  std::shared_ptr<TokenConstraint> constraint;

  RequestOptions rest() const {
    RequestOptions out;
    out.priority = priority;
    out.constraint = constraint;
    return out;
  }
};

Job random_job(std::mt19937& random) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  Job job;
  // Few distinct beginnings, so that prefixes are shared.
  job.prompt.assign(static_cast<size_t>(pick(0, 60)), pick(1, 3));
  for (int i = pick(1, 40); i > 0; --i) job.prompt.push_back(pick(1, 49));
  SamplingParams& p = job.sampling;
  p.max_tokens = pick(1, 120);
  p.min_tokens = pick(0, std::min(5, p.max_tokens));
  p.temperature = pick(0, 1) ? 0.0f : 1.0f;
  p.seed = static_cast<uint64_t>(pick(0, 1000));
  p.ignore_eos = pick(0, 3) > 0;
  if (pick(0, 3) == 0) p.repetition_penalty = 1.3f;
  if (pick(0, 3) == 0) p.presence_penalty = 0.7f;
  if (pick(0, 3) == 0) p.bad_words = {{pick(1, 49)}, {pick(1, 49), pick(1, 49)}};
  if (pick(0, 3) == 0) p.stop_token_ids = {pick(1, 49)};
  if (pick(0, 3) == 0) p.logprobs = pick(0, 4);
  if (pick(0, 7) == 0) p.prompt_logprobs = pick(0, 3);
  if (pick(0, 5) == 0) job.constraint = every(pick(1, 3));
  job.priority = pick(-1, 1);
  return job;
}

void expect_same(const Output& a, const Output& b, size_t which) {
  EXPECT_EQ(a.token_ids, b.token_ids) << which;
  EXPECT_EQ(a.finish_reason, b.finish_reason) << which;
  EXPECT_EQ(a.stop_token, b.stop_token) << which;
  ASSERT_EQ(a.logprobs.size(), b.logprobs.size()) << which;
  for (size_t i = 0; i < a.logprobs.size(); ++i) {
    EXPECT_EQ(a.logprobs[i].logprob, b.logprobs[i].logprob);
    EXPECT_EQ(a.logprobs[i].top, b.logprobs[i].top);
  }
  ASSERT_EQ(a.prompt_logprobs.size(), b.prompt_logprobs.size()) << which;
  for (size_t i = 0; i < a.prompt_logprobs.size(); ++i) {
    EXPECT_EQ(a.prompt_logprobs[i].logprob, b.prompt_logprobs[i].logprob);
  }
}

std::vector<Output> one_by_one(const std::vector<Job>& jobs) {
  ModelOptions options = FakeEngine::default_options();
  options.enable_prefix_caching = false;
  FakeEngine fake(options);
  std::vector<Output> out;
  for (const Job& job : jobs) {
    out.push_back(read_all(fake.submit(job.prompt, job.sampling, job.rest()).results()));
  }
  return out;
}

TEST(EngineStress, AnyBatchChunkAndCacheSizeGivesTheSameOutput) {
  const auto seed = static_cast<unsigned>(::testing::UnitTest::GetInstance()->random_seed());
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::vector<Job> jobs;
  for (int i = 0; i < 120; ++i) jobs.push_back(random_job(random));
  const std::vector<Output> expected = one_by_one(jobs);

  struct Shape {
    int32_t seqs, tokens, chunk, block_size, blocks;
    bool ahead = false;
  };
  for (const Shape& shape :
       {Shape{8, 64, 0, 16, 64}, Shape{32, 40, 7, 16, 20}, Shape{16, 16, 0, 32, 11},
        Shape{64, 200, 50, 64, 12}, Shape{8, 64, 0, 16, 64, true}, Shape{32, 40, 7, 16, 20, true},
        Shape{64, 200, 50, 64, 12, true}}) {
    ModelOptions options = FakeEngine::default_options();
    options.max_num_seqs = shape.seqs;
    options.max_num_batched_tokens = shape.tokens;
    options.max_prefill_chunk = shape.chunk;
    options.block_size = shape.block_size;
    options.num_kv_blocks = shape.blocks;
    FakeEngine fake(options, {.max_logit_rows = 5, .ahead = shape.ahead});
    std::vector<Request> requests;
    fake.control->hold();  // all are there before the first step ends
    for (const Job& job : jobs) {
      requests.push_back(fake.submit(job.prompt, job.sampling, job.rest()));
    }
    fake.control->resume();
    for (size_t i = 0; i < jobs.size(); ++i) {
      expect_same(read_all(requests[i].results()), expected[i], i);
    }
    const ModelStats stats = fake.engine->model_stats("m");
    EXPECT_EQ(stats.free_kv_blocks, shape.blocks);
    EXPECT_EQ(stats.finished_requests, jobs.size());
    if (shape.blocks == 20) {
      EXPECT_GT(stats.preemptions, 0u) << "meant to be short of blocks";
    }
  }
}

void submit_cancel_and_read(bool ahead) {
  ModelOptions options = FakeEngine::default_options();
  options.max_num_seqs = 16;
  options.num_kv_blocks = 40;
  FakeEngine fake(options, {.ahead = ahead});
  constexpr int kThreads = 16;
  constexpr int kRequests = 40;
  const auto seed = static_cast<unsigned>(::testing::UnitTest::GetInstance()->random_seed());
  SCOPED_TRACE(seed);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(seed + static_cast<unsigned>(t));
      const auto pick = [&](int low, int high) {
        return std::uniform_int_distribution<int>(low, high)(random);
      };
      std::vector<std::pair<Ids, Request>> mine;
      for (int i = 0; i < kRequests; ++i) {
        const Ids prompt(static_cast<size_t>(pick(1, 50)), pick(1, 49));
        RequestOptions rest;
        rest.priority = pick(-1, 1);
        if (pick(0, 5) == 0) rest.timeout = std::chrono::microseconds(pick(0, 3000));
        if (pick(0, 5) == 0) rest.constraint = every(1);
        SamplingParams params{.temperature = 0, .max_tokens = pick(1, 40), .ignore_eos = true};
        if (pick(0, 5) == 0) params.presence_penalty = 1e-30f;  // of no effect
        mine.emplace_back(prompt, fake.submit(prompt, params, rest));
        if (pick(0, 3) == 0) mine[static_cast<size_t>(pick(0, i))].second.cancel();
        if (pick(0, 9) == 0) fake.engine->model_stats("m");
        if (pick(0, 19) == 0) fake.engine->clear_prefix_cache("m");
      }
      for (auto& [prompt, request] : mine) {
        const Output out = read_all(request.results());
        const auto count = static_cast<int32_t>(out.token_ids.size());
        EXPECT_EQ(out.token_ids, fake_greedy(prompt, count));
        EXPECT_NE(out.finish_reason, FinishReason::kNone);
        if (out.finish_reason == FinishReason::kError) {
          EXPECT_EQ(out.error_code, ErrorCode::kDeadlineExceeded) << out.error_message;
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const ModelStats stats = fake.engine->model_stats("m");
  EXPECT_EQ(stats.finished_requests, static_cast<uint64_t>(kThreads * kRequests));
  EXPECT_EQ(stats.free_kv_blocks, stats.total_kv_blocks);
  EXPECT_EQ(stats.running_requests + stats.waiting_requests, 0);
}

TEST(EngineStress, ManyThreadsSubmitCancelAndRead) { submit_cancel_and_read(false); }

TEST(EngineStress, ManyThreadsSubmitCancelAndReadWithStepsAhead) { submit_cancel_and_read(true); }

TEST(EngineStress, ThousandsOfQueuesMayBeDropped) {
  FakeEngine fake;
  for (int32_t i = 0; i < 2000; ++i) {
    fake.submit({i % 50}, {.temperature = 0, .max_tokens = 2, .ignore_eos = true});
  }
  fake.engine->stop_model("m");
  EXPECT_EQ(fake.engine->model_stats("m").finished_requests, 2000u);
}

}  // namespace
}  // namespace headrace
