// swap_space over a real decoder: the bits of every answer are the same with and without it.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>
#include <random>

#include "base/check.h"
#include "cpp/engine/expect_error.h"
#include "cpp/engine/tiny_folder.h"
#include "cpp/model/golden_case.h"
#include "fakes/fake_engine.h"

namespace headrace {
namespace {

using testing::expect_error;
using testing::read_all;
using testing::TinyFolder;
using Ids = std::vector<int32_t>;

constexpr double kMiB = 1.0 / 1024;  // of swap_space

ModelOptions options_for(const TinyFolder& folder) {
  ModelOptions options;
  options.path = folder.path();
  options.dummy_weights = true;
  options.num_threads = 1;
  options.max_num_seqs = 4;
  options.max_num_batched_tokens = 48;
  options.max_model_len = 200;
  options.num_kv_blocks = 16;
  options.block_size = 16;
  return options;
}

/// Conversations that go on: each request repeats one of a few texts and goes a little further.
std::vector<Ids> random_prompts(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Ids> texts(4), prompts;
  for (int i = 0; i < 40; ++i) {
    Ids& text = texts[random() % texts.size()];
    if (text.size() > 120) text.resize(random() % 100);
    for (uint64_t n = 10 + random() % 40; n > 0; --n) {
      text.push_back(static_cast<int32_t>(3 + random() % 90));
    }
    prompts.push_back(text);
  }
  return prompts;
}

std::vector<Output> run(const ModelOptions& options, const std::vector<Ids>& prompts,
                        ModelStats* stats = nullptr) {
  Engine engine;
  engine.install_model("m", options);
  engine.start_model("m");
  std::vector<Output> out;
  // A few at once, so that they compete for blocks.
  for (size_t first = 0; first < prompts.size(); first += 4) {
    std::vector<Request> requests;
    for (size_t i = first; i < std::min(first + 4, prompts.size()); ++i) {
      RequestOptions request;
      request.prompt_token_ids = prompts[i];
      request.sampling = {.temperature = 0, .max_tokens = 30, .ignore_eos = true, .logprobs = 2};
      requests.push_back(engine.submit("m", request));
    }
    for (Request& request : requests) out.push_back(read_all(request.results()));
  }
  if (stats != nullptr) *stats = engine.model_stats("m");
  return out;
}

void expect_same(const std::vector<Output>& a, const std::vector<Output>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].error_code, ErrorCode::kOk) << a[i].error_message;
    ASSERT_EQ(a[i].token_ids, b[i].token_ids) << "request " << i;
    ASSERT_EQ(a[i].logprobs.size(), b[i].logprobs.size());
    for (size_t j = 0; j < a[i].logprobs.size(); ++j) {
      ASSERT_EQ(a[i].logprobs[j].top, b[i].logprobs[j].top) << "request " << i << ", token " << j;
    }
  }
}

struct Format {
  const char *isa, *kv_cache_dtype;
  const char* golden = nullptr;  ///< whose groups of layers keep other rows; null: one group
};

class EngineSwapDecoder : public ::testing::TestWithParam<Format> {};

TEST_P(EngineSwapDecoder, GivesTheSameBits) {
  const TinyFolder folder;
  const uint64_t seed = 7;
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  const std::vector<Ids> prompts = random_prompts(seed);
  ModelOptions options = options_for(folder);
  int32_t groups = 1;
  if (GetParam().golden != nullptr) {
    options.path = load_golden_case(GetParam().golden).folder;
    options.dummy_weights = false;
    ModelOptions enough = options;
    enough.num_kv_blocks = 1000;
    Engine engine;
    engine.install_model("m", enough);
    groups = engine.model_info("m").num_kv_groups;
  }
  options.num_kv_blocks *= groups;
  options.cpu_isa = GetParam().isa;
  options.kv_cache_dtype = GetParam().kv_cache_dtype;
  options.enable_prefix_caching = false;
  const std::vector<Output> cold = run(options, prompts);
  options.enable_prefix_caching = true;
  ModelStats without, with;
  expect_same(run(options, prompts, &without), cold);
  EXPECT_EQ(without.kv_blocks_to_host, 0u);

  options.swap_space = 0.5 * kMiB;
  options.num_threads = 2;
  expect_same(run(options, prompts, &with), cold);
  EXPECT_GT(with.prefix_host_hit_tokens, 0u);
  EXPECT_GT(with.prefix_hit_tokens, without.prefix_hit_tokens);
  EXPECT_LT(with.prompt_tokens, without.prompt_tokens) << "what is found is not computed";

  options.num_kv_blocks = 13 * groups;  // one request of 200 tokens
  options.num_threads = 1;
  expect_same(run(options, prompts, &with), cold);
  EXPECT_GT(with.preemptions, 0u);
  EXPECT_GT(with.prefix_host_hit_tokens, 0u);
}

std::string name_of(const ::testing::TestParamInfo<Format>& info) {
  const auto& [isa, dtype, golden] = info.param;
  const std::string of = golden == nullptr ? "" : str_cat("_", golden);
  return str_cat(*isa == 0 ? "best" : isa, "_", dtype, of);
}

INSTANTIATE_TEST_SUITE_P(Formats, EngineSwapDecoder,
                         ::testing::Values(Format{"baseline", "float32"},
                                           Format{"baseline", "int8"}, Format{"baseline", "uint4"},
                                           Format{"baseline", "fp8"}, Format{"", "bfloat16"},
                                           Format{"", "uint4"}, Format{"baseline", "float16"},
                                           Format{"", "int8", "gemma4_text"},
                                           Format{"", "bfloat16", "deepseek_v2"}),
                         name_of);

TEST(EngineSwapModel, TellsWhatItHasTaken) {
  const TinyFolder folder;
  ModelOptions options = options_for(folder);
  Engine engine;
  engine.install_model("without", options);
  options.swap_space = kMiB;
  engine.install_model("m", options);
  const ModelInfo info = engine.model_info("m");
  const size_t block = info.kv_cache_bytes / static_cast<size_t>(info.num_kv_blocks);
  EXPECT_EQ(info.num_host_kv_blocks, static_cast<int32_t>((1u << 20) / block));
  EXPECT_EQ(info.host_kv_cache_bytes, static_cast<size_t>(info.num_host_kv_blocks) * block);
  EXPECT_EQ(engine.model_stats("m").memory_bytes,
            engine.model_stats("without").memory_bytes + info.host_kv_cache_bytes);
  EXPECT_EQ(engine.model_info("without").num_host_kv_blocks, 0);
}

TEST(EngineSwapModel, MoreThanTheMachineHasIsRefused) {
  const TinyFolder folder;
  ModelOptions options = options_for(folder);
  options.swap_space = 500000;
  Engine engine;
  expect_error(ErrorCode::kOutOfMemory, {"swap_space is 500000 GiB", "main memory", "lower it"},
               [&] { engine.install_model("m", options); });
  options.swap_space = 1e-6;
  expect_error(ErrorCode::kLimitExceeded, {"swap_space is 1e-06 GiB", "raise it"},
               [&] { engine.install_model("m", options); });
  EXPECT_TRUE(engine.models().empty());
}

}  // namespace
}  // namespace headrace
