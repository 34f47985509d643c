// A crowd before real towers and decoders: text, images, clips and cancellations on a tenth of the
// KV cache give the bits that each request gives alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <random>
#include <thread>

#include "cpp/engine/hold.h"
#include "cpp/engine/media/vision_jobs.h"
#include "cpp/model/vision/vision_golden.h"
#include "headrace/engine.h"
#include "model/load/load_config.h"

namespace headrace {
namespace {

constexpr int kJobs = 30, kRequests = 300;

struct Crowd {
  const char* model;
  int32_t threads = 1;
  bool prefix_caching = true;
  const char* guesses = "";  ///< a method
  const char* quantization = "";
};

/// Blocks for the tokens of one: where some layers have windows, each is a group of its own.
int32_t num_groups(const VisionGolden& golden) {
  const ModelConfig config = load_model_config(golden.folder);
  return std::ranges::any_of(config.layer_window, [](int32_t w) { return w > 0; })
             ? config.num_layers
             : 1;
}

ModelOptions options_of(const VisionGolden& golden, const Crowd& crowd) {
  ModelOptions options;
  options.path = golden.folder.string();
  options.device = "cpu";
  options.dtype = "float32";
  options.quantization = crowd.quantization;
  options.num_threads = 1;
  options.max_model_len = 160;
  options.max_num_seqs = 16;
  options.max_num_batched_tokens = 64;
  options.block_size = 16;
  options.num_kv_blocks = 160 * num_groups(golden);  // of 16 requests of 160 tokens
  return options;
}

struct Job {
  RequestOptions request;
  Output alone;
};

Output read_all(const Request& request) {
  request.wait();
  return *request.results().get_nowait();
}

/// Random ones, with what each gives alone: no cache, one thread, room for all.
std::vector<Job> make_jobs(const VisionGolden& golden, const Crowd& crowd, std::mt19937& random) {
  const ModelConfig config = load_model_config(golden.folder);
  ModelOptions options = options_of(golden, crowd);
  options.enable_prefix_caching = false;
  Engine engine;
  engine.install_model("m", options);
  engine.start_model("m");
  std::vector<Job> jobs(kJobs);
  for (Job& job : jobs) {
    job.request = testing::random_vision_request(config, random);
    job.request.sampling = {.temperature = 0,
                            .max_tokens = 1 + static_cast<int32_t>(random() % 24),
                            .ignore_eos = true,
                            .logprobs = 1};
    job.alone = read_all(engine.submit("m", job.request));
    EXPECT_EQ(job.alone.error_message, "");
  }
  return jobs;
}

void expect_begins_like(const Output& out, const Output& alone) {
  ASSERT_LE(out.token_ids.size(), alone.token_ids.size());
  ASSERT_EQ(out.logprobs.size(), out.token_ids.size());
  for (size_t i = 0; i < out.token_ids.size(); ++i) {
    ASSERT_EQ(out.token_ids[i], alone.token_ids[i]) << i;
    ASSERT_EQ(out.logprobs[i].logprob, alone.logprobs[i].logprob) << i;
  }
}

class EngineVisionCrowd : public ::testing::TestWithParam<Crowd> {};

TEST_P(EngineVisionCrowd, GivesWhatEachGivesAlone) {
  const Crowd& crowd = GetParam();
  const auto seed = static_cast<unsigned>(::testing::UnitTest::GetInstance()->random_seed());
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const VisionGolden golden = load_vision_golden(crowd.model);
  const std::vector<Job> jobs = make_jobs(golden, crowd, random);
  ModelOptions options = options_of(golden, crowd);
  options.num_threads = crowd.threads;
  options.enable_prefix_caching = crowd.prefix_caching;
  // Less than a tenth, and a few more than the largest may need.
  options.num_kv_blocks = 12 * num_groups(golden);
  options.max_encoder_tokens = 8;
  options.encoder_cache_bytes = 40 << 10;
  options.speculative.method = crowd.guesses;
  Engine engine;
  engine.install_model("m", options);
  engine.start_model("m");
  for (const Job& job : jobs) read_all(engine.submit("m", job.request));
  ModelStats stats = engine.model_stats("m");
  const size_t before = stats.memory_bytes - stats.encoder_cache_bytes;  // no item is new any more
  std::promise<void> gathered;  // a third of them: a crowd on any machine
  testing::hold(engine, gathered.get_future().share());
  std::vector<std::pair<const Job*, Request>> requests;
  for (int i = 0; i < kRequests; ++i) {
    const Job& job = jobs[random() % jobs.size()];
    RequestOptions given = job.request;
    given.priority = static_cast<int32_t>(random() % 3) - 1;
    requests.emplace_back(&job, engine.submit("m", std::move(given)));
    if (random() % 6 == 0) requests[random() % requests.size()].second.cancel();
    if (i == kRequests / 3) gathered.set_value();
    if (i > kRequests / 3 && random() % 2 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
  }
  int whole = 0, cancelled = 0;
  for (const auto& [job, request] : requests) {
    const Output out = read_all(request);
    expect_begins_like(out, job->alone);
    if (HasFatalFailure()) return;
    const bool is_whole = out.finish_reason == FinishReason::kLength;
    ASSERT_TRUE(is_whole || out.error_code == ErrorCode::kCancelled) << out.error_message;
    if (is_whole) {
      ASSERT_EQ(out.token_ids.size(), job->alone.token_ids.size());
    }
    ++(is_whole ? whole : cancelled);
  }
  EXPECT_GT(whole, kRequests / 2);
  EXPECT_GT(cancelled, 5);
  engine.stop_model("m");
  stats = engine.model_stats("m");
  EXPECT_GT(stats.preemptions, 0u);
  EXPECT_GT(stats.encoded_tokens, 0u);
  EXPECT_GT(stats.encoder_hit_tokens, 0u);
  EXPECT_EQ(stats.prefix_hit_tokens > 0, crowd.prefix_caching);
  EXPECT_EQ(stats.free_kv_blocks, stats.total_kv_blocks);
  EXPECT_LE(stats.encoder_cache_bytes, options.encoder_cache_bytes);
  EXPECT_EQ(stats.memory_bytes, before + stats.encoder_cache_bytes);
}

INSTANTIATE_TEST_SUITE_P(
    All, EngineVisionCrowd,
    ::testing::Values(Crowd{"qwen2_5_vl"}, Crowd{"qwen3_vl", 2}, Crowd{"qwen2_vl", 2, false},
                      Crowd{"qwen3_5", 2}, Crowd{"qwen3_5", 1, true, "mtp"},
                      Crowd{"smolvlm", 1, true, "ngram"}, Crowd{"gemma3", 2},
                      Crowd{"gemma3", 1, true, "ngram"}, Crowd{"qwen2_5_vl", 2, true, "", "wint8"}),
    [](const auto& crowd) {
      return str_cat(crowd.param.model, crowd.param.quantization, crowd.param.guesses);
    });

}  // namespace
}  // namespace headrace
