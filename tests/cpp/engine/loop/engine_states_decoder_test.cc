// Models whose layers keep states, in an engine with too little of everything: every answer has the
// bits that it has alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "cpp/engine/expect_error.h"
#include "cpp/model/golden_case.h"
#include "fakes/fake_engine.h"

namespace headrace {
namespace {

using testing::expect_error;
using testing::read_all;
using Ids = std::vector<int32_t>;

constexpr double kMiB = 1.0 / 1024;  // of swap_space
constexpr size_t kJobs = 50;

struct Crowd {
  std::string folder;
  int32_t ranks = 1;
  int requests = 1000;
  std::string guesses{};
  OutOfBlocks out_of_blocks = OutOfBlocks::kPreempt;
};

ModelOptions options_for(const Crowd& crowd) {
  ModelOptions out;
  out.path = load_golden_case(crowd.folder).folder;
  out.device = "cpu";
  out.dtype = "float32";
  out.tensor_parallel_size = crowd.ranks;
  out.num_threads = std::max(1, crowd.ranks);
  out.max_num_seqs = 6;
  out.max_model_len = 176;
  out.block_size = 16;
  out.num_kv_blocks = 64;
  return out;
}

struct Job {
  Ids prompt;
  SamplingParams sampling;
};

/// Few beginnings, so that prefixes are shared. `loops`: answers that repeat themselves.
std::vector<Job> random_jobs(bool loops) {
  std::mt19937 random(7);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  std::vector<Job> out;
  for (size_t i = 0; i < kJobs; ++i) {
    Job& job = out.emplace_back();
    job.prompt.assign(static_cast<size_t>(pick(0, 4) * 16), pick(3, 4));
    for (int n = pick(1, 20); n > 0; --n) job.prompt.push_back(pick(3, 40));
    job.sampling.seed = i;
    job.sampling.temperature = loops || pick(0, 2) ? 0.0f : 1.0f;
    job.sampling.max_tokens = pick(1, loops ? 90 : 24);
    job.sampling.ignore_eos = true;
    job.sampling.logprobs = 0;
  }
  return out;
}

Request submit(Engine& engine, const Job& job) {
  RequestOptions request;
  request.prompt_token_ids = job.prompt;
  request.sampling = job.sampling;
  return engine.submit("m", request);
}

/// Each alone, in an engine without a prefix cache.
std::vector<Output> run_alone(ModelOptions options, const std::vector<Job>& jobs) {
  options.enable_prefix_caching = false;
  Engine engine;
  engine.install_model("m", options);
  engine.start_model("m");
  std::vector<Output> out;
  for (const Job& job : jobs) out.push_back(read_all(submit(engine, job).results()));
  return out;
}

/// Of what the sequences want, a tenth.
ModelOptions with_too_little(ModelOptions options, const Crowd& crowd) {
  options.num_kv_blocks = 12;
  options.max_num_batched_tokens = 24;
  options.num_state_slots = 8;
  options.snapshot_interval = 32;
  options.swap_space = 0.25 * kMiB;
  options.out_of_blocks = crowd.out_of_blocks;
  options.speculative.method = crowd.guesses;
  options.speculative.num_speculative_tokens = 3;
  if (!crowd.guesses.empty()) options.max_num_seqs = 4;  // not all have slots for their guesses
  return options;
}

bool same_logprobs(const std::vector<PositionLogprobs>& some,
                   const std::vector<PositionLogprobs>& all) {
  return std::ranges::equal(some, std::span(all).first(some.size()),
                            [](const PositionLogprobs& a, const PositionLogprobs& b) {
                              return a.token == b.token && a.logprob == b.logprob;
                            });
}

class EngineStates : public ::testing::TestWithParam<Crowd> {};

TEST_P(EngineStates, CrowdsGetWhatEachGetsAlone) {
  const std::vector<Job> jobs = random_jobs(!GetParam().guesses.empty());
  const ModelOptions options = options_for(GetParam());
  const std::vector<Output> alone = run_alone(options, jobs);
  Engine engine;
  engine.install_model("m", with_too_little(options, GetParam()));
  engine.start_model("m");
  std::mt19937 random(11);
  std::vector<std::pair<size_t, Request>> requests;
  for (int i = 0; i < GetParam().requests; ++i) {
    const size_t job = random() % jobs.size();
    requests.emplace_back(job, submit(engine, jobs[job]));
    if (random() % 20 == 0) requests[random() % requests.size()].second.cancel();
  }
  size_t whole = 0;
  for (auto& [job, request] : requests) {
    const Output out = read_all(request.results());
    ASSERT_NE(out.finish_reason, FinishReason::kError) << out.error_message;
    const Ids& expected = alone[job].token_ids;
    ASSERT_LE(out.token_ids.size(), expected.size());
    EXPECT_TRUE(std::ranges::equal(out.token_ids, std::span(expected).first(out.token_ids.size())));
    EXPECT_TRUE(same_logprobs(out.logprobs, alone[job].logprobs));
    whole += out.token_ids.size() == expected.size() ? 1 : 0;
  }
  EXPECT_GT(whole, requests.size() / 2);
  engine.stop_model("m");
  const ModelStats stats = engine.model_stats("m");
  EXPECT_EQ(stats.finished_requests, requests.size());
  EXPECT_EQ(stats.free_kv_blocks, stats.total_kv_blocks);
  EXPECT_EQ(stats.free_state_slots + stats.cached_state_slots, stats.total_state_slots);
  EXPECT_EQ(stats.total_state_slots, 8);
  EXPECT_GT(stats.snapshots_saved, 0u);
  EXPECT_GT(stats.snapshots_evicted, 0u);
  EXPECT_GT(stats.snapshots_restored, 0u);
  EXPECT_GT(stats.prefix_hit_tokens, 0u);
  EXPECT_EQ(stats.accepted_tokens > 0, !GetParam().guesses.empty());
}

INSTANTIATE_TEST_SUITE_P(
    All, EngineStates,
    ::testing::Values(Crowd{"qwen3_5"}, Crowd{"qwen3_5", 2, 100}, Crowd{"qwen3_5", 1, 300, "ngram"},
                      Crowd{"qwen3_5", 1, 200, "mtp"},
                      Crowd{"lfm2", 1, 1000, "", OutOfBlocks::kInterruptLongest},
                      Crowd{"falcon_h1", 1, 100}, Crowd{"nemotron_h", 2, 100},
                      Crowd{"lfm2", 4, 100}),
    [](const auto& crowd) {
      return crowd.param.folder + "_" + std::to_string(crowd.param.ranks) + crowd.param.guesses;
    });

TEST(EngineStates, StepsMayHaveMoreRowsThanAllSequencesTogether) {
  ModelOptions options = options_for({"qwen3_5"});
  options.max_num_seqs = options.num_state_slots = 1;
  options.max_num_batched_tokens = 2 * options.max_model_len;
  Engine engine;
  EXPECT_NO_THROW(engine.install_model("m", options));
  EXPECT_EQ(engine.model_info("m").num_state_slots, 1);
}

TEST(EngineStates, TellsOfSlotsAndRefusesTooFew) {
  ModelOptions options = options_for({"qwen3_5"});
  Engine engine;
  engine.install_model("m", options);
  const ModelInfo info = engine.model_info("m");
  EXPECT_GE(info.num_state_slots, options.max_num_seqs);
  EXPECT_GT(info.state_slot_bytes, 0u);
  EXPECT_GT(info.snapshot_interval, 0);
  options.num_state_slots = options.max_num_seqs - 1;
  expect_error(ErrorCode::kLimitExceeded, {"num_state_slots"},
               [&] { engine.install_model("few", options); });
  options.num_state_slots = 0;
  options.snapshot_interval = 24;
  expect_error(ErrorCode::kInvalidArgument, {"snapshot_interval"},
               [&] { engine.install_model("odd", options); });
}

}  // namespace
}  // namespace headrace
