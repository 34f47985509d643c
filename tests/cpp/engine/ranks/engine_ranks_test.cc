// Several devices compute a model together, here groups of CPU threads: transformers' tokens with
// its log-probabilities, the same bits every time and whatever runs beside a request, and what one
// device gives with swap, adapters, guesses and quantized weights.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "cpp/engine/expect_error.h"
#include "cpp/engine/ranks/rank_runs.h"
#include "cpp/engine/tiny_folder.h"
#include "cpp/model/golden_case.h"
#include "cpp/model/lora_files.h"
#include "fakes/fake_engine.h"
#include "headrace/engine.h"
#include "headrace/pack.h"
#include "model/config/model_config.h"
#include "model/load/load_config.h"

namespace headrace {
namespace {

using testing::expect_error;
using testing::read_all;
using testing::TinyFolder;

struct Run {
  std::string name;
  int32_t ranks;
};

std::vector<Run> golden_runs() {
  std::vector<Run> out;
  for (const std::string& name : golden_case_names()) {
    const ModelConfig config = load_model_config(load_golden_case(name).folder);
    for (const int32_t count : {2, 3, 4}) {
      if (can_share(config, count)) out.push_back({name, count});
    }
  }
  return out;
}

class EngineRanks : public ::testing::TestWithParam<Run> {};

TEST_P(EngineRanks, AnswerAsTransformersDoes) {
  const GoldenCase golden = load_golden_case(GetParam().name);
  ModelOptions options = options_for(golden.folder, GetParam().ranks);
  options.max_model_len = 256;  // llama_dynamic's texts are longer than what it was trained with
  const auto engine = start(options);
  EXPECT_EQ(engine->model_info("m").tensor_parallel_size, GetParam().ranks);
  constexpr size_t kMost = 12;
  const std::vector<Output> answers = run(*engine, prompts_of(golden), kMost, true);
  for (size_t i = 0; i < answers.size(); ++i) {
    SCOPED_TRACE(i);
    const GoldenPrompt& entry = golden.prompts[i];
    ASSERT_EQ(answers[i].error_message, "");
    const size_t count = std::min(kMost, entry.tokens.size());
    ASSERT_GE(answers[i].token_ids.size(), count);
    EXPECT_TRUE(std::equal(entry.tokens.begin(), entry.tokens.begin() + std::ptrdiff_t(count),
                           answers[i].token_ids.begin()));
    double error = 0;
    for (size_t t = 0; t < count; ++t) {
      error = std::max(error,
                       std::abs(double{answers[i].logprobs[t].logprob} - entry.token_logprobs[t]));
    }
    for (size_t t = 0; t < entry.prompt_logprobs.size(); ++t) {
      error = std::max(error, std::abs(double{answers[i].prompt_logprobs[t].logprob} -
                                       entry.prompt_logprobs[t]));
    }
    EXPECT_LE(error, golden.logprob_tolerance);
  }
}

std::string name_of(const ::testing::TestParamInfo<Run>& test) {
  return test.param.name + "_" + std::to_string(test.param.ranks);
}

INSTANTIATE_TEST_SUITE_P(Golden, EngineRanks, ::testing::ValuesIn(golden_runs()), name_of);

TEST(EngineRanksBits, DependOnTheRequestAlone) {
  const GoldenCase golden = load_golden_case("llama");
  const auto prompts = prompts_of(golden);
  for (const int32_t ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    ModelOptions options = options_for(golden.folder, ranks);
    const auto alone = run(*start(options), prompts, 24);
    expect_same(run(*start(options), prompts, 24), alone);
    expect_same(run(*start(options), prompts, 24, true), alone);
    options.num_threads = 3 * ranks;
    options.max_num_batched_tokens = 16;
    options.block_size = 32;
    expect_same(run(*start(options), prompts, 24, true), alone);
  }
}

// Both are within golden.logprob_tolerance of the exact answer.
TEST(EngineRanksWith, WholeExpertsAnswerAsOneDevice) {
  for (const auto& [name, ranks] : {std::pair<const char*, int32_t>{"qwen3_moe", 2},
                                    {"qwen3_moe_fused", 4},
                                    {"qwen2_moe_norm", 3},
                                    {"ernie4_5_moe_paddle", 3},
                                    {"mixtral_window", 3},
                                    {"gpt_oss", 4},
                                    {"gpt_oss_mxfp4", 2},
                                    {"glm4_moe", 2}}) {
    SCOPED_TRACE(name);
    const GoldenCase golden = load_golden_case(name);
    const auto one = run(*start(options_for(golden.folder, 1)), prompts_of(golden), 12, true);
    ModelOptions options = options_for(golden.folder, ranks);
    options.enable_expert_parallel = true;
    const auto several = run(*start(options), prompts_of(golden), 12, true);
    EXPECT_LE(distance(several, one), 2 * golden.logprob_tolerance);
    expect_same(run(*start(options), prompts_of(golden), 12), several);
  }
}

TEST(EngineRanksWith, AdaptersAnswerAsOneDevice) {
  for (const auto& [name, ranks] : {std::pair<const char*, int32_t>{"qwen3_window", 2},
                                    {"qwen3_window", 4},
                                    {"llama_tied_mqa", 4},
                                    {"ernie4_5_bias_paddle", 2}}) {
    SCOPED_TRACE(::testing::Message() << name << " " << ranks);
    const GoldenCase golden = load_golden_case(name);
    AdapterToWrite adapter;
    adapter.rank = 4;
    const TempFolder folder;
    write_adapter(folder, load_model_config(golden.folder), adapter);
    std::vector<std::vector<Output>> answers;
    for (const int32_t count : {1, ranks}) {
      ModelOptions options = options_for(golden.folder, count);
      options.max_loras = 1;
      options.max_lora_rank = 4;
      const auto engine = start(options);
      const size_t before = engine->model_stats("m").memory_bytes;
      engine->load_lora("m", "a", folder.path().string());
      EXPECT_EQ(engine->model_stats("m").memory_bytes - before, engine->loras("m")[0].bytes);
      answers.push_back(run(*engine, prompts_of(golden), 12, true, "a"));
      const auto plain = run(*engine, prompts_of(golden), 12, true);
      EXPECT_NE(plain[0].logprobs[0].logprob, answers.back()[0].logprobs[0].logprob);
      engine->unload_lora("m", "a");
      EXPECT_EQ(engine->model_stats("m").memory_bytes, before);
    }
    EXPECT_LE(distance(answers[1], answers[0]), 4 * golden.logprob_tolerance);
  }
}

TEST(EngineRanksWith, GuessesAndSwapGiveTheSameBits) {
  const GoldenCase golden = load_golden_case("llama");
  const auto prompts = prompts_of(golden);
  ModelOptions options = options_for(golden.folder, 2);
  const auto plain = run(*start(options), prompts, 40, true);
  options.speculative.method = "ngram";
  options.speculative.num_speculative_tokens = 4;
  expect_same(run(*start(options), prompts, 40, true), plain);
  options.speculative.method = "draft_model";
  options.speculative.model = golden.folder;
  const auto drafting = start(options);
  // A drafter rests while guesses cost more time than they save, as they may on a busy machine.
  for (int i = 0; i < 20 && drafting->model_stats("m").accepted_tokens == 0; ++i) {
    expect_same(run(*drafting, prompts, 40, true), plain);
  }
  EXPECT_GT(drafting->model_stats("m").accepted_tokens, 0u);
}

TEST(EngineRanksWith, SwapGivesTheSameBits) {
  const TinyFolder folder;
  ModelOptions options = options_for(folder.path(), 2);
  options.dummy_weights = true;
  options.num_kv_blocks = 12;
  options.max_num_seqs = 1;
  std::vector<std::vector<int32_t>> prompts;
  for (int32_t i = 0; i < 4; ++i) prompts.emplace_back(static_cast<size_t>(100), 3 + i);
  const auto ask = [&](Engine& engine) {
    std::vector<Output> out;
    for (int round = 0; round < 2; ++round) {
      for (const auto& prompt : prompts) {
        RequestOptions request;
        request.prompt_token_ids = prompt;
        request.sampling.temperature = 0;
        request.sampling.max_tokens = 8;
        request.sampling.logprobs = 1;
        out.push_back(read_all(engine.submit("m", request).results()));
      }
    }
    return out;
  };
  const auto plain = ask(*start(options));
  options.swap_space = 0.01;
  const auto engine = start(options);
  expect_same(ask(*engine), plain);
  EXPECT_GT(engine->model_stats("m").prefix_host_hit_tokens, 0u);
}

TEST(EngineRanksWith, QuantizedWeightsAndCachesGiveTheSameBitsEveryTime) {
  const TinyFolder folder(R"(, "head_dim": 32)");
  std::vector<std::vector<int32_t>> prompts = {{5, 6, 7, 8, 9}, {11, 3, 5, 90, 41, 12, 7}};
  for (const char* quantization : {"wint8", "wint4"}) {
    SCOPED_TRACE(quantization);
    ModelOptions options = options_for(folder.path(), 2);
    options.dummy_weights = true;
    options.quantization = quantization;
    options.quantization_group_size = 32;
    options.kv_cache_dtype = "int8";
    const auto first = run(*start(options), prompts, 20);
    expect_same(run(*start(options), prompts, 20, true), first);
  }
}

TEST(EngineRanksWith, EmbeddingsComeFromAllRanks) {
  const GoldenCase golden = load_golden_case("qwen3");
  std::vector<std::vector<float>> pooled;
  for (const int32_t ranks : {1, 2}) {
    const auto engine = start(options_for(golden.folder, ranks));
    RequestOptions request;
    request.prompt_token_ids = golden.prompts[0].prompt;
    request.pooling.emplace();
    pooled.push_back(read_all(engine->submit("m", request).results()).pooled);
  }
  ASSERT_EQ(pooled[0].size(), pooled[1].size());
  for (size_t i = 0; i < pooled[0].size(); ++i) EXPECT_NEAR(pooled[0][i], pooled[1][i], 1e-4);
}

TEST(EngineRanksMemory, EachHoldsItsPartAlone) {
  const TinyFolder folder;
  ModelOptions options = options_for(folder.path(), 1);
  options.dummy_weights = true;
  options.num_kv_blocks = 16;
  Watched one, two;
  one.load(options, {0});
  options.tensor_parallel_size = 2;
  options.num_threads = 2;
  two.load(options, {0, 0});
  const auto whole = static_cast<double>(one.model->info.weight_bytes);
  EXPECT_NEAR(static_cast<double>(two.model->info.weight_bytes), whole,
              0.15 * whole);  // layouts are padded
  EXPECT_EQ(two.model->info.num_threads, 2);
  EXPECT_EQ(two.model->info.kv_cache_bytes, one.model->info.kv_cache_bytes);
  for (const auto& backend : two.backends) {
    EXPECT_LT(backend->bytes_in_use(), 0.7 * static_cast<double>(one.backends[0]->bytes_in_use()));
  }
  EXPECT_EQ(two.model->runner->memory_bytes(),
            two.backends[0]->bytes_in_use() + two.backends[1]->bytes_in_use());
}

TEST(EngineRanksMemory, ALoadThatFailsOnOneLeavesNothingOnAny) {
  const TinyFolder folder;
  ModelOptions options = options_for(folder.path(), 2);
  options.dummy_weights = true;
  for (const auto& limits : {std::vector<size_t>{0, 100'000}, std::vector<size_t>{100'000, 0}}) {
    Watched model;
    expect_error(ErrorCode::kOutOfMemory, {}, [&] { model.load(options, limits); });
    ASSERT_EQ(model.backends.size(), 2u);
    for (const auto& backend : model.backends) EXPECT_EQ(backend->bytes_in_use(), 0u);
  }
}

TEST(EngineRanksErrors, NameWhatCannotBeSharedAndTheRemedy) {
  const auto refused = [](const ModelOptions& options, ErrorCode code,
                          std::initializer_list<const char*> words) {
    Engine engine;
    expect_error(code, words, [&] { engine.install_model("m", options); });
    EXPECT_TRUE(engine.models().empty());
  };
  const std::string llama = load_golden_case("llama").folder;
  refused(options_for(llama, 3), ErrorCode::kUnsupported,
          {"4 attention heads", "2 key/value heads", "3 devices", "tensor_parallel_size"});
  ModelOptions options = options_for(llama, 2);
  options.num_threads = 1;
  refused(options, ErrorCode::kInvalidArgument, {"num_threads is 1", "2 devices"});
  options = options_for(llama, 2);
  options.enable_expert_parallel = true;
  refused(options, ErrorCode::kUnsupported, {"enable_expert_parallel", "no experts"});
  options.tensor_parallel_size = 1;
  refused(options, ErrorCode::kInvalidArgument, {"enable_expert_parallel", "tensor_parallel_size"});
  options = options_for(load_golden_case("mixtral").folder, 3);
  options.enable_expert_parallel = true;
  refused(options, ErrorCode::kUnsupported, {"5 experts", "3 devices", "divisor"});
  const TempFolder folder;
  options = options_for(llama, 1);
  pack_model(options, (folder.path() / "packed").string());
  options.tensor_parallel_size = 2;
  options.num_threads = 2;
  options.packed_weights = (folder.path() / "packed").string();
  refused(options, ErrorCode::kUnsupported,
          {"packed for 1 device,", "run on 2 devices", "folder's own weights"});
  options = options_for(llama, 2);
  options.num_kv_blocks = 0;
  options.kv_cache_bytes = 1;
  refused(options, ErrorCode::kLimitExceeded, {"less than one KV block"});
  for (const int32_t size : {0, -1, 65}) {
    refused(options_for(llama, size), ErrorCode::kInvalidArgument, {"tensor_parallel_size must"});
  }
  options = options_for(llama, 1);
  options.device = "auto";
  for (const auto& [devices, word] :
       {std::pair<std::vector<std::string>, const char*>{{"cpu:0", "cpu:0"}, "cpu:0"},
        {{"cpu:1", "cpu:0"}, "place 0"},
        {{"cpu:0", "cuda:1"}, "cuda:1"},
        {{"cuda:1", "cuda:1"}, "twice"},
        {{"tpu:0"}, "tpu:0"}}) {
    options.devices = devices;
    refused(options, ErrorCode::kInvalidArgument, {"devices has", word});
  }
  options.devices = {"cpu:0", "cpu:1"};
  options.tensor_parallel_size = 4;
  refused(options, ErrorCode::kInvalidArgument, {"tensor_parallel_size is 4", "names 2"});
  options.tensor_parallel_size = 2;
  options.device = "cpu";
  refused(options, ErrorCode::kInvalidArgument, {"device is cpu", "devices"});
  options = options_for(llama, 2);
  options.device = "cuda:1";
  refused(options, ErrorCode::kInvalidArgument, {"cuda:1", "one GPU"});
  options.device = "cpu:1";
  options.tensor_parallel_size = 1;
  refused(options, ErrorCode::kUnsupported, {"cpu:1"});
}

TEST(EngineRanksErrors, DevicesByNameAreTheSameRanks) {
  const GoldenCase golden = load_golden_case("llama");
  ModelOptions options = options_for(golden.folder, 2);
  const auto by_count = run(*start(options), prompts_of(golden), 8);
  options.tensor_parallel_size = 1;
  options.device = "auto";
  options.devices = {"cpu:0", "cpu:1"};
  const auto engine = start(options);
  EXPECT_EQ(engine->model_info("m").tensor_parallel_size, 2);
  expect_same(run(*engine, prompts_of(golden), 8), by_count);
}

}  // namespace
}  // namespace headrace
