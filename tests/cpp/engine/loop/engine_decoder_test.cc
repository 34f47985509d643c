// The engine over a real decoder: a tiny Llama with pseudo-random weights on the CPU backend.

#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <iterator>
#include <random>
#include <thread>

#include "backend/cpu/cpu_backend.h"
#include "cpp/engine/expect_error.h"
#include "cpp/engine/hold.h"
#include "cpp/engine/tiny_folder.h"
#include "fakes/fake_engine.h"
#include "memory/mmap_allocator.h"

namespace headrace {
namespace {

using testing::expect_error;
using testing::hold;
using testing::read_all;
using testing::TinyFolder;
using Ids = std::vector<int32_t>;

constexpr int32_t kVocab = 97;

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
  SamplingParams sampling;
};

std::vector<Job> random_jobs(unsigned seed) {
  std::mt19937 random(seed);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  std::vector<Job> jobs;
  for (int i = 0; i < 24; ++i) {
    Job job;
    job.prompt.assign(static_cast<size_t>(pick(0, 40)), pick(3, 5));
    for (int k = pick(1, 15); k > 0; --k) job.prompt.push_back(pick(3, kVocab - 1));
    job.sampling.max_tokens = pick(1, 70);
    job.sampling.ignore_eos = pick(0, 1);
    job.sampling.temperature = pick(0, 1) ? 0.0f : 1.0f;
    job.sampling.top_k = pick(0, 1) ? 0 : 20;
    job.sampling.top_p = pick(0, 1) ? 1.0f : 0.9f;
    job.sampling.seed = static_cast<uint64_t>(i);
    job.sampling.logprobs = 2;
    if (i % 5 == 1) job.sampling.no_repeat_ngram_size = pick(1, 3);
    if (i % 4 == 1) {
      job.sampling.repetition_penalty = 1.3f;
      job.sampling.penalize_output_only = i % 8 == 1;
      job.sampling.logprobs_kind = LogprobsKind::kPenalizedLogprobs;
    }
    if (i % 6 == 0) job.sampling.prompt_logprobs = 1;
    jobs.push_back(job);
  }
  return jobs;
}

Request submit(Engine& engine, const Job& job) {
  RequestOptions request;
  request.prompt_token_ids = job.prompt;
  request.sampling = job.sampling;
  return engine.submit("m", request);
}

std::vector<Output> run(const ModelOptions& options, const std::vector<Job>& jobs, bool together,
                        ModelStats* stats = nullptr) {
  Engine engine;
  engine.install_model("m", options);
  engine.start_model("m");
  std::promise<void> all_submitted;
  if (together) hold(engine, all_submitted.get_future().share());
  std::vector<Request> requests;
  std::vector<Output> out;
  for (const Job& job : jobs) {
    requests.push_back(submit(engine, job));
    if (!together) requests.back().wait();
  }
  all_submitted.set_value();
  for (const Request& request : requests) out.push_back(read_all(request.results()));
  if (stats != nullptr) *stats = engine.model_stats("m");
  return out;
}

void expect_same(const std::vector<Output>& a, const std::vector<Output>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(a[i].error_message, "");
    EXPECT_EQ(a[i].token_ids, b[i].token_ids);
    EXPECT_EQ(a[i].finish_reason, b[i].finish_reason);
    const auto same = [](const PositionLogprobs& x, const PositionLogprobs& y) {
      return x.token == y.token && x.logprob == y.logprob && x.rank == y.rank && x.top == y.top;
    };
    EXPECT_TRUE(std::ranges::equal(a[i].logprobs, b[i].logprobs, same));
    EXPECT_TRUE(std::ranges::equal(a[i].prompt_logprobs, b[i].prompt_logprobs, same));
  }
}

class EngineDecoder : public ::testing::TestWithParam<std::string> {};

TEST_P(EngineDecoder, TokensAndLogprobsDependOnTheRequestAlone) {
  const TinyFolder folder;
  // Jobs of this seed outgrow the 8 blocks below; those of some others don't.
  const std::vector<Job> jobs = random_jobs(1);
  ModelOptions options = tiny_options(folder);
  options.cpu_isa = GetParam();
  options.enable_prefix_caching = false;
  const std::vector<Output> alone = run(options, jobs, false);
  for (const Output& out : alone) EXPECT_EQ(out.error_code, ErrorCode::kOk) << out.error_message;

  expect_same(run(options, jobs, true), alone);
  options.enable_prefix_caching = true;
  options.num_threads = 2;
  ModelStats stats;
  expect_same(run(options, jobs, true, &stats), alone);
  EXPECT_GT(stats.prefix_hit_tokens, 0u);

  options.max_model_len = 128;
  options.num_kv_blocks = 8;
  options.max_num_batched_tokens = 24;
  options.max_prefill_chunk = 5;
  expect_same(run(options, jobs, true, &stats), alone);
  EXPECT_GT(stats.preemptions, 0u);
  EXPECT_EQ(stats.free_kv_blocks, 8);

  options.block_size = 64;
  options.num_kv_blocks = 3;
  options.num_threads = 1;
  expect_same(run(options, jobs, true, &stats), alone);
}

INSTANTIATE_TEST_SUITE_P(Isas, EngineDecoder, ::testing::ValuesIn(available_cpu_isas()),
                         [](const auto& param_info) { return param_info.param; });

/// A tiny model whose layers, or all but the first one, have a window of 20.
void give_windows(const TinyFolder& folder, bool all) {
  std::ifstream in(folder.path() + "/config.json");
  std::string config((std::istreambuf_iterator<char>(in)), {});
  const auto replace = [&](const std::string& from, const std::string& to) {
    config.replace(config.find(from), from.size(), to);
  };
  replace("LlamaFor", all ? "MistralFor" : "Qwen2For");
  replace("llama", all ? "mistral" : "qwen2");
  replace("{",
          all ? R"({"sliding_window": 20, )"
              : R"({"sliding_window": 20, "use_sliding_window": true, "max_window_layers": 1, )");
  std::ofstream(folder.path() + "/config.json") << config;
}

// Behind a draft model all blocks are kept: the same tokens, from one group.
TEST(EngineDecoderModel, WindowsGiveBlocksBackAndChangeNothing) {
  for (const bool all : {false, true}) {
    SCOPED_TRACE(all);
    const TinyFolder folder("", "3");
    give_windows(folder, all);
    std::vector<Job> jobs = random_jobs(3);
    jobs.resize(6);
    for (size_t i = 0; i < jobs.size(); ++i) {
      Ids& prompt = jobs[i].prompt;
      prompt.insert(prompt.begin(), 130, static_cast<int32_t>(7 + i / 2));
      jobs[i].sampling.prompt_logprobs = {};
    }
    ModelOptions options = tiny_options(folder);
    options.cpu_isa = "baseline";
    options.speculative = {.method = "draft_model", .model = folder.path()};
    const std::vector<Output> whole = run(options, jobs, false);
    options.speculative = {};
    options.max_num_batched_tokens = 24;
    options.max_prefill_chunk = 8;
    ModelStats stats;
    // Of the 16 blocks of a longest sequence a window keeps 9.
    options.num_kv_blocks = all ? 10 : 16 + 2 * 9;
    options.swap_space = 1e-4;
    expect_same(run(options, jobs, true, &stats), whole);
    EXPECT_GT(stats.prefix_hit_tokens, 0u);
    EXPECT_EQ(stats.free_kv_blocks, options.num_kv_blocks);
    options.num_kv_blocks = all ? 8 : 16 + 2 * 9 - 1;
    Engine engine;
    engine.install_model("m", options);
    EXPECT_LT(engine.model_info("m").max_model_len, 256);
    options.max_model_len = 256;
    expect_error(ErrorCode::kLimitExceeded, {all ? "needs a KV cache of 9 blocks" : "of 34 blocks"},
                 [&] { engine.install_model("n", options); });
    options.max_model_len = 20;
    engine.install_model("n", options);
    EXPECT_EQ(engine.model_info("n").num_kv_groups, 1) << "nothing is ever behind the window";
  }
}

TEST(EngineDecoderModel, TellsWhatItIs) {
  const TinyFolder folder;
  ModelOptions options = tiny_options(folder);
  options.cpu_isa = "baseline";
  options.num_threads = 2;
  options.dtype = "bfloat16";
  Engine engine;
  engine.install_model("m", options);
  const ModelInfo info = engine.model_info("m");
  EXPECT_EQ(info.name, "m");
  EXPECT_EQ(info.path, folder.path());
  EXPECT_EQ(info.family, "llama");
  EXPECT_EQ(info.device, "cpu");
  EXPECT_EQ(info.isa, "baseline");
  EXPECT_EQ(info.num_threads, 2);
  EXPECT_EQ(info.dtype, "bfloat16");
  EXPECT_EQ(info.kv_cache_dtype, "bfloat16");
  EXPECT_EQ(info.vocab_size, kVocab);
  EXPECT_EQ(info.head_dim, 16);
  EXPECT_EQ(info.max_model_len, 256);
  EXPECT_EQ(info.max_num_batched_tokens, 64);
  EXPECT_EQ(info.num_kv_blocks, 64);
  EXPECT_EQ(info.eos_token_ids, (Ids{2}));
  const int64_t per_layer = 64 * (64 + 2 * 32) + 64 * 64 + 3 * 64 * 96 + 2 * 64;
  EXPECT_EQ(info.num_parameters, 2 * kVocab * 64 + 2 * per_layer + 64);
  EXPECT_GE(info.weight_bytes, static_cast<size_t>(info.num_parameters) * 2);
  EXPECT_EQ(info.kv_cache_bytes, 64u * 16 * 2 * 2 * 2 * 16 * 2) << "blocks, tokens, layers, k+v...";
  EXPECT_GT(info.scratch_bytes, 0u);
  EXPECT_EQ(engine.model_stats("m").memory_bytes,
            info.weight_bytes + info.kv_cache_bytes + info.scratch_bytes);
  EXPECT_GE(engine.model_stats("m").memory_pool_bytes, engine.model_stats("m").memory_bytes);
}

TEST(EngineDecoderModel, BadFoldersAndSizesAreRefused) {
  const TinyFolder folder;
  Engine engine;
  ModelOptions options = tiny_options(folder);
  options.path = folder.path() + "/nowhere";
  expect_error(ErrorCode::kNotFound, {"nowhere", "config.json", "pass the folder"},
               [&] { engine.install_model("m", options); });
  options = tiny_options(folder);
  options.dummy_weights = false;
  expect_error(ErrorCode::kNotFound, {}, [&] { engine.install_model("m", options); });
  options = tiny_options(folder);
  options.max_model_len = 2000;
  expect_error(ErrorCode::kLimitExceeded, {"2000", "1024"},
               [&] { engine.install_model("m", options); });
  options = tiny_options(folder);
  options.num_kv_blocks = std::numeric_limits<int32_t>::max();
  expect_error(ErrorCode::kOutOfMemory, {"2147483647"},
               [&] { engine.install_model("m", options); });
  options = tiny_options(folder);
  options.cpu_isa = "z80";
  expect_error(ErrorCode::kUnsupported, {"z80"}, [&] { engine.install_model("m", options); });
  EXPECT_TRUE(engine.models().empty());
}

// Keys beyond the original length depend on the prompt's length: only equal lengths may share.
TEST(EngineDecoderModel, DynamicRopeSharesBlocksOnlyAmongEqualLengths) {
  const TinyFolder folder(R"(, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0})");
  ModelOptions options = tiny_options(folder);
  options.max_model_len = 400;
  Engine engine;
  engine.install_model("m", options);
  engine.start_model("m");
  const auto cached = [&](size_t length) {
    RequestOptions request;
    request.prompt_token_ids = Ids(length, 5);
    request.sampling = {.temperature = 0, .max_tokens = 2};
    Request handle = engine.submit("m", request);
    handle.wait();
    return handle.results().stats().cached_tokens;
  };
  EXPECT_EQ(cached(300), 0);
  EXPECT_EQ(cached(300), 288);
  EXPECT_EQ(cached(310), 0);
  EXPECT_EQ(cached(200), 0);
  EXPECT_EQ(cached(250), 192);
}

// A KV cache takes its memory when it is first written: until then the system calls it free.
TEST(EngineDecoderModel, NoTwoModelsAreGivenTheSameMemory) {
  const TinyFolder folder;
  Engine one, two;
  ModelOptions options = tiny_options(folder);
  options.num_kv_blocks = 0;
  options.block_size = 256;
  options.enable_prefix_caching = false;
  options.kv_cache_bytes = host_memory_info().free_bytes / 2;
  one.install_model("a", options);
  options.kv_cache_bytes = host_memory_info().free_bytes / 10 * 7;
  expect_error(ErrorCode::kOutOfMemory, {"KV cache"}, [&] { two.install_model("b", options); });
  one.release_model("a");
  two.install_model("b", options);
}

TEST(EngineDecoderModel, TwoModelsShareNothing) {
  const TinyFolder one, two(R"(, "attention_bias": false)");
  Engine engine;
  engine.install_model("a", tiny_options(one));
  engine.install_model("b", tiny_options(two));
  engine.start_model("a");
  engine.start_model("b");
  const auto generate = [&](const std::string& name) {
    RequestOptions request;
    request.prompt_token_ids = {5, 6, 7};
    request.sampling = {.temperature = 0, .max_tokens = 40};
    return engine.submit(name, request);
  };
  Request a = generate("a"), b = generate("b");
  EXPECT_EQ(read_all(a.results()).token_ids, read_all(b.results()).token_ids);
  engine.release_model("a");
  EXPECT_EQ(read_all(generate("b").results()).error_message, "");
}

}  // namespace
}  // namespace headrace
