// Swap space, adapters, quantized weights and quantized KV caches on several GPUs of the fake
// runtime: what one device gives, and the same bits every time
// (tests/cpp/engine/ranks/engine_ranks_test.cc has the same of the CPU).

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "cpp/model/checkpoint_files.h"
#include "cpp/model/golden_case.h"
#include "cpp/model/lora_files.h"
#include "cpp/model/quantized_checkpoint.h"
#include "cpp/model/test_json.h"
#include "cuda/host/support/engine_requests.h"
#include "cuda/host/support/rank_devices.h"
#include "model/config/model_config.h"
#include "model/load/load_config.h"

namespace headrace {
namespace {

using Prompts = std::vector<std::vector<int32_t>>;

const Prompts kPrompts = {prompt(30, 3), prompt(7, 9), prompt(50, 1)};

std::vector<Output> answers(ModelOptions options, int32_t ranks, const Prompts& prompts,
                            int32_t tokens, bool together) {
  RankDevices devices(ranks);
  devices.start(std::move(options), ranks);
  return devices.run(prompts, tokens, together);
}

std::string text_of(const ::testing::TestParamInfo<const char*>& test) { return test.param; }

class CudaRanksCache : public ::testing::TestWithParam<const char*> {};

/// Expects the bits of `plain`, by turns or together.
void expect_bits(RankDevices& devices, const Prompts& prompts, bool together,
                 const std::vector<Output>& plain) {
  const auto tokens = static_cast<int32_t>(plain[0].token_ids.size());
  expect_same(devices.run(prompts, tokens, together), plain);
  const ModelStats stats = devices.engine().model_stats("m");
  EXPECT_EQ(stats.free_kv_blocks, stats.total_kv_blocks);
}

// Conversations by turns that don't fit the cache together, and some at once that grow beyond it:
// what comes back from host memory (codes with their scales, of each GPU's heads), and what is
// computed again.
TEST_P(CudaRanksCache, SwapAndPreemptionGiveTheSameBits) {
  const Prompts turns = {prompt(90, 0), prompt(90, 1), prompt(90, 0)};
  const Prompts growing = {prompt(9, 1), prompt(13, 2), prompt(17, 3), prompt(21, 4)};
  ModelOptions options = small_options();
  options.dtype = "bfloat16";
  options.max_model_len = 128;
  options.kv_cache_dtype = GetParam();
  RankDevices roomy(2);
  roomy.start(options, 2);
  const std::vector<Output> turned = roomy.run(turns, 6, false);
  const std::vector<Output> grown = roomy.run(growing, 44, true);
  options.num_kv_blocks = 9;
  options.swap_space = 1.0 / 16;
  options.max_num_batched_tokens = 24;
  RankDevices devices(2);
  devices.start(options, 2);
  const int moved = devices.api().calls("copy_rows");
  expect_bits(devices, turns, false, turned);
  EXPECT_GT(devices.api().calls("copy_rows"), moved);
  EXPECT_GT(devices.engine().model_stats("m").prefix_host_hit_tokens, 0u);
  expect_bits(devices, growing, true, grown);
  EXPECT_GT(devices.engine().model_stats("m").preemptions, 0u);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, CudaRanksCache, ::testing::Values("uint4"), text_of);
// What is disabled is run by `tests/run goldens`.
INSTANTIATE_TEST_SUITE_P(DISABLED_All, CudaRanksCache,  // minutes in the emulation
                         ::testing::Values("auto", "int8", "fp8"), text_of);

class CudaRanksQuantizedCache : public CudaRanksCache {};

// A head's keys and values have scales of their own, so its codes are those of one GPU, up to
// sums in another order: by far less than what rounding to codes does.
TEST_P(CudaRanksQuantizedCache, AnswersAsOneGpu) {
  const GoldenCase golden = load_golden_case("llama");
  ModelOptions options = options_for(golden);
  const std::vector<Output> whole = answers(options, 1, kPrompts, 1, true);
  options.kv_cache_dtype = GetParam();
  const std::vector<Output> one = answers(options, 1, kPrompts, 8, true);
  double rounding = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    rounding = std::max(
        rounding, std::abs(double{one[i].logprobs[0].logprob} - whole[i].logprobs[0].logprob));
  }
  EXPECT_GT(rounding, 0.0);
  EXPECT_LE(distance(answers(options, 2, kPrompts, 8, true), one), 0.1 * rounding);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, CudaRanksQuantizedCache, ::testing::Values("fp8"), text_of);
INSTANTIATE_TEST_SUITE_P(DISABLED_All, CudaRanksQuantizedCache,  // minutes in the emulation
                         ::testing::Values("int8", "uint4"), text_of);

// What PEFT answers with adapters that it saved: tests/golden/make_lora.py.
TEST(CudaRanksWith, AdaptersAnswerAsPeftDoes) {
  const std::filesystem::path golden = HEADRACE_GOLDEN_DIR;
  const Json all = Json::parse(read_small_file(golden / "lora/expected.json", 1 << 20));
  for (const auto& [name, expected] : all.items()) {
    SCOPED_TRACE(name);
    const GoldenCase of = load_golden_case(expected.at("case").get<std::string>());
    ModelOptions options = options_for(of);
    options.max_loras = 1;
    options.max_lora_rank = 16;
    RankDevices devices(2);
    devices.start(options, 2);
    devices.engine().load_lora("m", "a", (golden / "lora" / name).string());
    const auto tokens = expected.at("tokens").get<std::vector<int32_t>>();
    const Prompts prompts = {expected.at("prompt").get<std::vector<int32_t>>()};
    const auto got = devices.run(prompts, static_cast<int32_t>(tokens.size()), true, "a");
    EXPECT_EQ(got[0].error_message, "");
    EXPECT_EQ(got[0].token_ids, tokens);
    const auto want = expected.at("logprobs").get<std::vector<double>>();
    for (size_t t = 0; t < want.size(); ++t) {
      EXPECT_NEAR(got[0].logprobs[t].logprob, want[t], of.logprob_tolerance) << t;
    }
  }
}

// Beside requests without one, and alone; one head of keys and values that all four GPUs have.
TEST(CudaRanksWith, AdaptersAnswerAsOneGpu) {
  const GoldenCase golden = load_golden_case("llama_tied_mqa");
  AdapterToWrite adapter;
  adapter.rank = 4;
  const TempFolder folder;
  write_adapter(folder, load_model_config(golden.folder), adapter);
  std::vector<std::vector<Output>> adapted;
  for (const int32_t ranks : {1, 4}) {
    SCOPED_TRACE(ranks);
    ModelOptions options = options_for(golden);
    options.max_loras = 1;
    options.max_lora_rank = 4;
    RankDevices devices(ranks);
    devices.start(options, ranks);
    const size_t before = devices.engine().model_stats("m").memory_bytes;
    devices.engine().load_lora("m", "a", folder.path().string());
    EXPECT_EQ(devices.engine().model_stats("m").memory_bytes - before,
              devices.engine().loras("m")[0].bytes);
    const std::vector<Output> alone = devices.run(kPrompts, 8, false, "a");
    const Request plain = devices.submit(kPrompts[0], 12);
    expect_same(devices.run(kPrompts, 8, true, "a"), alone);
    const Output other = testing::read_all(plain.results());
    EXPECT_EQ(other.error_message, "");
    EXPECT_NE(other.logprobs[0].logprob, alone[0].logprobs[0].logprob);
    devices.engine().unload_lora("m", "a");
    EXPECT_EQ(devices.engine().model_stats("m").memory_bytes, before);
    adapted.push_back(alone);
  }
  EXPECT_LE(distance(adapted[1], adapted[0]), 4 * golden.logprob_tolerance);
}

/// Codes are exact and activations aren't rounded, so GPUs differ from one by the order of float32
/// sums: each is within the tolerance of the exact answer. In bfloat16 that order would show at
/// once.
void expect_quantized(ModelOptions options, const GoldenCase& golden) {
  const std::vector<Output> one = answers(options, 1, kPrompts, 8, true);
  EXPECT_LE(distance(answers(options, 2, kPrompts, 8, true), one), 2 * golden.logprob_tolerance);
  options.dtype = "bfloat16";
  const std::vector<Output> alone = answers(options, 2, kPrompts, 8, false);
  options.max_num_batched_tokens = 16;
  expect_same(answers(options, 2, kPrompts, 8, true), alone);
}

class CudaRanksQuantized : public ::testing::TestWithParam<const char*> {};

// The inputs of o and down are shared out: one group of 32 of the first's 64, of the second's 96
// two and one.
TEST_P(CudaRanksQuantized, AtLoadAnswersAsOneGpu) {
  const GoldenCase golden = load_golden_case("llama");
  ModelOptions options = options_for(golden);
  options.quantization = GetParam();
  options.quantization_group_size = 32;
  expect_quantized(options, golden);
}

INSTANTIATE_TEST_SUITE_P(Names, CudaRanksQuantized, ::testing::Values("wint4"), text_of);
INSTANTIATE_TEST_SUITE_P(DISABLED_All, CudaRanksQuantized,  // minutes in the emulation
                         ::testing::Values("wint8"), text_of);

class CudaRanksQuantizedCheckpoint : public ::testing::TestWithParam<Tool> {};

TEST_P(CudaRanksQuantizedCheckpoint, AnswersAsOneGpu) {
  const GoldenCase golden = load_golden_case("llama");
  const TempFolder quantized, plain;
  write_quantized(golden.folder, GetParam(), quantized.path(), plain.path());
  ModelOptions options = options_for(golden);
  options.path = quantized.path().string();
  expect_quantized(options, golden);
}

std::string name_of(const ::testing::TestParamInfo<Tool>& test) {
  constexpr const char* kNames[] = {"Gptq", "GptqActOrder", "Awq", "Packed", "Int8"};
  return kNames[static_cast<size_t>(test.param)];
}

INSTANTIATE_TEST_SUITE_P(Tools, CudaRanksQuantizedCheckpoint, ::testing::Values(Tool::kGptq),
                         name_of);
INSTANTIATE_TEST_SUITE_P(DISABLED_All, CudaRanksQuantizedCheckpoint,  // minutes in the emulation
                         ::testing::Values(Tool::kAwq, Tool::kPacked, Tool::kInt8), name_of);

}  // namespace
}  // namespace headrace
