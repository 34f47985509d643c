// Embeddings over a real decoder: a tiny Llama with pseudo-random weights on the CPU backend.

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "cpp/engine/expect_error.h"
#include "cpp/engine/hold.h"
#include "cpp/engine/tiny_folder.h"
#include "fakes/fake_engine.h"

namespace headrace {
namespace {

using testing::expect_error;
using testing::hold;
using testing::read_all;
using testing::TinyFolder;
using Ids = std::vector<int32_t>;
using Vectors = std::vector<std::vector<float>>;

constexpr int32_t kVocab = 97, kHidden = 64;

ModelOptions tiny_options(const TinyFolder& folder) {
  ModelOptions options;
  options.path = folder.path();
  options.dummy_weights = true;
  options.num_threads = 1;
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 64;
  options.num_kv_blocks = 64;
  options.block_size = 16;
  return options;
}

struct Job {
  Ids prompt;
  std::optional<PoolingParams> pooling;  ///< nullopt: text, to fill the steps
};

std::vector<Job> random_jobs(size_t count, int most) {
  std::mt19937 random(7);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  const PoolingParams kinds[] = {
      {},
      {.pooling = Pooling::kMean},
      {.pooling = Pooling::kCls, .dimensions = 5},
      {.dimensions = 7, .normalize = false},
      {.normalize = false, .logit_token_ids = {90, 3, 3}},
      {.pooling = Pooling::kMean, .normalize = false},
  };
  std::vector<Job> jobs;
  for (size_t i = 0; i < count; ++i) {
    Job job;
    job.prompt.assign(static_cast<size_t>(pick(0, most / 2)), pick(3, 4));
    for (int k = pick(1, most / 2); k > 0; --k) job.prompt.push_back(pick(3, kVocab - 1));
    job.pooling = kinds[i % std::size(kinds)];
    jobs.push_back(job);
  }
  return jobs;
}

/// With texts between them.
std::vector<Job> with_texts(std::vector<Job> jobs) {
  for (int i = 0; i < 6; ++i) {
    jobs.insert(jobs.begin() + i * 3, Job{Ids(static_cast<size_t>(5 + i), 3 + i), std::nullopt});
  }
  return jobs;
}

Request submit(Engine& engine, const Job& job) {
  RequestOptions request;
  request.prompt_token_ids = job.prompt;
  request.pooling = job.pooling;
  if (!job.pooling) request.sampling = {.temperature = 0, .max_tokens = 100, .ignore_eos = true};
  return engine.submit("m", request);
}

Vectors run(const ModelOptions& options, const std::vector<Job>& jobs, bool together,
            ModelStats* stats = nullptr) {
  Engine engine;
  engine.install_model("m", options);
  engine.start_model("m");
  std::promise<void> all_submitted;
  if (together && engine.model_info("m").generates) {
    hold(engine, all_submitted.get_future().share());
  }
  std::vector<Request> requests;
  for (const Job& job : jobs) {
    requests.push_back(submit(engine, job));
    if (!together) requests.back().wait();
  }
  all_submitted.set_value();
  Vectors out;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const Output output = read_all(requests[i].results());
    EXPECT_EQ(output.error_message, "");
    if (!jobs[i].pooling) continue;
    EXPECT_EQ(output.finish_reason, FinishReason::kStop);
    EXPECT_TRUE(output.token_ids.empty());
    EXPECT_FALSE(output.pooled.empty());
    EXPECT_EQ(requests[i].results().stats().generated_tokens, 0);
    out.push_back(output.pooled);
  }
  if (stats != nullptr) *stats = engine.model_stats("m");
  return out;
}

std::vector<float> embed(const ModelOptions& options, const Ids& prompt, PoolingParams pooling) {
  return run(options, {{prompt, std::move(pooling)}}, false).at(0);
}

class EnginePooling : public ::testing::TestWithParam<std::string> {};

TEST_P(EnginePooling, BitsDependOnTheRequestAlone) {
  const TinyFolder folder;
  const std::vector<Job> jobs = random_jobs(30, 100);
  ModelOptions options = tiny_options(folder);
  options.cpu_isa = GetParam();
  options.enable_prefix_caching = false;
  const Vectors alone = run(options, jobs, false);

  EXPECT_EQ(run(options, jobs, true), alone);
  options.enable_prefix_caching = true;
  options.num_threads = 2;
  ModelStats stats;
  EXPECT_EQ(run(options, with_texts(jobs), true, &stats), alone);
  EXPECT_GT(stats.prefix_hit_tokens, 0u);

  options.max_model_len = 128;
  options.num_kv_blocks = 9;
  options.max_num_batched_tokens = 24;
  options.max_prefill_chunk = 5;
  EXPECT_EQ(run(options, with_texts(jobs), true, &stats), alone);
  EXPECT_GT(stats.preemptions, 0u);
  EXPECT_EQ(stats.free_kv_blocks, 9);
}

TEST_P(EnginePooling, BitsOfBidirectionalModelsToo) {
  const TinyFolder folder(R"(, "is_causal": false)");
  const std::vector<Job> jobs = random_jobs(18, 60);
  ModelOptions options = tiny_options(folder);
  options.cpu_isa = GetParam();
  const Vectors alone = run(options, jobs, false);
  options.num_threads = 2;
  options.num_kv_blocks = 5;
  options.max_model_len = 80;
  ModelStats stats;
  EXPECT_EQ(run(options, jobs, true, &stats), alone);
  EXPECT_EQ(stats.prefix_hit_tokens, 0u);
  EXPECT_EQ(stats.free_kv_blocks, 5);
}

INSTANTIATE_TEST_SUITE_P(Isas, EnginePooling, ::testing::ValuesIn(available_cpu_isas()),
                         [](const auto& param_info) { return param_info.param; });

TEST(EnginePoolingValues, AreWhatIsAskedFor) {
  const TinyFolder folder;
  const ModelOptions options = tiny_options(folder);
  const Ids prompt = {5, 17, 80, 4};
  const auto whole = embed(options, prompt, {.normalize = false});
  ASSERT_EQ(whole.size(), size_t{kHidden});
  EXPECT_EQ(embed(options, prompt, {.dimensions = 9, .normalize = false}),
            std::vector<float>(whole.begin(), whole.begin() + 9));
  double squares = 0;
  for (const float value : embed(options, prompt, {.dimensions = 9})) squares += value * value;
  EXPECT_NEAR(squares, 1, 1e-6);

  // Causal rows are those of the prompts that end there: their mean is the mean of these.
  std::vector<double> sum(kHidden, 0.0);
  for (size_t end = 1; end <= prompt.size(); ++end) {
    const auto row = embed(options, {prompt.begin(), prompt.begin() + static_cast<int>(end)},
                           {.normalize = false});
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += row[i];
  }
  std::vector<float> mean;
  for (const double value : sum) mean.push_back(static_cast<float>(value / 4));
  EXPECT_EQ(embed(options, prompt, {.pooling = Pooling::kMean, .normalize = false}), mean);
  EXPECT_EQ(embed(options, prompt, {.pooling = Pooling::kCls}), embed(options, {5}, {}));
}

TEST(EnginePoolingValues, LogitsAreThoseThatTokensAreDrawnFrom) {
  const TinyFolder folder;
  const ModelOptions options = tiny_options(folder);
  Engine engine;
  engine.install_model("m", options);
  engine.start_model("m");
  RequestOptions request;
  request.prompt_token_ids = {5, 17, 80};
  request.sampling = {.temperature = 0,
                      .max_tokens = 1,
                      .logprobs = kVocab,
                      .logprobs_kind = LogprobsKind::kRawLogits};
  const Output drawn = read_all(engine.submit("m", request).results());
  std::vector<float> logits(kVocab);
  for (const auto& [token, logit] : drawn.logprobs.at(0).top) {
    logits[static_cast<size_t>(token)] = logit;
  }
  Ids ids(64);
  std::iota(ids.begin(), ids.end(), 33);
  logits.erase(logits.begin(), logits.begin() + 33);
  EXPECT_EQ(embed(options, {5, 17, 80}, {.normalize = false, .logit_token_ids = ids}), logits);
}

TEST(EnginePoolingValues, EveryTokenOfABidirectionalModelSeesAllOthers) {
  const TinyFolder causal, folder(R"(, "is_causal": false)");
  const PoolingParams first{.pooling = Pooling::kCls};
  const auto with = [&](const TinyFolder& model, int32_t last) {
    return embed(tiny_options(model), {5, 17, last}, first);
  };
  EXPECT_EQ(with(causal, 80), with(causal, 81));
  EXPECT_NE(with(folder, 80), with(folder, 81));
}

TEST(EnginePoolingErrors, NameFieldAndValue) {
  const TinyFolder folder;
  Engine engine;
  engine.install_model("m", tiny_options(folder));
  engine.start_model("m");
  const auto refused = [&](PoolingParams pooling, const char* text) {
    expect_error(ErrorCode::kInvalidArgument, {text},
                 [&] { submit(engine, {{3}, std::move(pooling)}); });
  };
  refused({.dimensions = 65}, "dimensions is 65");
  refused({.dimensions = -1}, "dimensions is -1");
  refused({.pooling = static_cast<Pooling>(3)}, "pooling is 3");
  refused({.normalize = false, .logit_token_ids = {97}}, "97");
  refused({.normalize = false, .logit_token_ids = Ids(65, 1)}, "65");
  refused({.logit_token_ids = {1}}, "normalize");
  RequestOptions sampled{.prompt_token_ids = {3}, .sampling = {.temperature = 0}};
  sampled.pooling.emplace();
  expect_error(ErrorCode::kInvalidArgument, {"sampling"}, [&] { engine.submit("m", sampled); });
  expect_error(ErrorCode::kInvalidArgument, {"empty"},
               [&] { submit(engine, {{}, PoolingParams{}}); });
  const Ids longest(256, 3);
  EXPECT_EQ(read_all(submit(engine, {longest, PoolingParams{}}).results()).pooled.size(), 64u);
  expect_error(ErrorCode::kLimitExceeded, {"max_model_len 256"},
               [&] { submit(engine, {Ids(257, 3), PoolingParams{}}); });
}

TEST(EnginePoolingErrors, ABidirectionalModelComputesPromptsAtOnce) {
  const TinyFolder folder(R"(, "is_causal": false)");
  ModelOptions options = tiny_options(folder);
  options.max_prefill_chunk = 20;
  Engine engine;
  engine.install_model("m", options);
  engine.start_model("m");
  EXPECT_FALSE(engine.model_info("m").causal);
  EXPECT_FALSE(engine.model_info("m").generates);
  EXPECT_EQ(read_all(submit(engine, {Ids(20, 3), PoolingParams{}}).results()).error_message, "");
  expect_error(ErrorCode::kLimitExceeded, {"max_num_batched_tokens"},
               [&] { submit(engine, {Ids(21, 3), PoolingParams{}}); });
  expect_error(ErrorCode::kUnsupported, {"bidirectional"},
               [&] { submit(engine, {{3}, std::nullopt}); });
  options.speculative.method = "ngram";
  expect_error(ErrorCode::kUnsupported, {"speculative"},
               [&] { engine.install_model("n", options); });
}

}  // namespace
}  // namespace headrace
