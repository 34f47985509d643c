// Several CPU ranks and quantized weights: near what one device gives, the same bits every time,
// and with adapters, whose parts go by the shares that the weights have.

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "cpp/engine/ranks/rank_runs.h"
#include "cpp/model/checkpoint_files.h"
#include "cpp/model/golden_case.h"
#include "cpp/model/lora_files.h"
#include "cpp/model/quantized_checkpoint.h"
#include "cpp/model/test_json.h"
#include "model/checkpoint/checkpoint.h"
#include "model/config/model_config.h"
#include "model/load/load_config.h"

namespace headrace {
namespace {

/// Activations are rounded row by row, on each rank its own inputs of o and down.
constexpr double kNear = 0.05;

void expect_near_one_device(const GoldenCase& golden, ModelOptions options, int32_t ranks) {
  const auto prompts = prompts_of(golden);
  options.tensor_parallel_size = options.num_threads = 1;
  const auto one = run(*start(options), prompts, 8, true);
  options.tensor_parallel_size = options.num_threads = ranks;
  const auto several = run(*start(options), prompts, 8, true);
  EXPECT_LE(distance(several, one), kNear);
  expect_same(run(*start(options), prompts, 8), several);
}

TEST(EngineRanksQuantized, WeightsRoundedAtLoadAnswerAsOneDevice) {
  for (const char* name : {"llama", "qwen3"}) {
    for (const char* quantization : {"wint8", "wint4"}) {
      SCOPED_TRACE(::testing::Message() << name << " " << quantization);
      const GoldenCase golden = load_golden_case(name);
      ModelOptions options = options_for(golden.folder, 1);
      options.quantization = quantization;
      options.quantization_group_size = 32;
      expect_near_one_device(golden, options, 2);
    }
  }
}

TEST(EngineRanksQuantized, CheckpointsAnswerAsOneDevice) {
  for (const Tool tool : {Tool::kGptq, Tool::kAwq, Tool::kPacked, Tool::kInt8}) {
    SCOPED_TRACE(static_cast<int>(tool));
    const GoldenCase golden = load_golden_case("llama");
    const TempFolder quantized, plain;
    write_quantized(golden.folder, tool, quantized.path(), plain.path());
    expect_near_one_device(golden, options_for(quantized.path().string(), 1), 2);
  }
}

/// What the model answers with an adapter, on one device and on `ranks`.
void expect_adapted_as_one_device(const GoldenCase& golden, ModelOptions options, int32_t ranks,
                                  AdapterToWrite adapter) {
  adapter.rank = 4;
  const TempFolder folder;
  write_adapter(folder, load_model_config(options.path), adapter);
  options.max_loras = 1;
  options.max_lora_rank = 4;
  const bool whole_experts = options.enable_expert_parallel;
  std::vector<std::vector<Output>> answers;
  for (const int32_t count : {1, ranks}) {
    options.tensor_parallel_size = options.num_threads = count;
    options.enable_expert_parallel = whole_experts && count > 1;
    const auto engine = start(options);
    engine->load_lora("m", "a", folder.path().string());
    answers.push_back(run(*engine, prompts_of(golden), 8, true, "a"));
    const auto plain = run(*engine, prompts_of(golden), 8, true);
    EXPECT_NE(plain.back().logprobs.back().logprob, answers.back().back().logprobs.back().logprob);
  }
  EXPECT_LE(distance(answers[1], answers[0]), kNear);
}

// Three groups of inner features on two devices: one has twice the other's.
TEST(EngineRanksQuantized, AdaptersGoByTheSharesOfTheWeights) {
  const GoldenCase golden = load_golden_case("llama");
  ASSERT_EQ(load_model_config(golden.folder).intermediate_size / 32 % 2, 1);
  const TempFolder quantized, plain;
  write_quantized(golden.folder, Tool::kGptq, quantized.path(), plain.path());
  expect_adapted_as_one_device(golden, options_for(quantized.path().string(), 1), 2, {});
}

// Which by their inner features couldn't be shared.
TEST(EngineRanksQuantized, AdaptersGoBesideWholeExperts) {
  const GoldenCase golden = load_golden_case("qwen3_moe");
  ModelOptions options = options_for(golden.folder, 1);
  options.quantization = "wint4";
  options.quantization_group_size = 32;
  options.enable_expert_parallel = true;
  expect_adapted_as_one_device(golden, options, 2,
                               {.modules = {"self_attn.q_proj"}, .spread = 0.5f});
}

/// The tensors of `quantized`, but those whose names hold `word` as they are in `plain`.
void leave_out(const std::string& word, const TempFolder& quantized, const TempFolder& plain) {
  std::vector<TensorToWrite> tensors;
  const auto take = [&](const Checkpoint& from, bool with_word) {
    for (const CheckpointTensor& tensor : from.tensors()) {
      if ((tensor.name.find(word) != std::string::npos) != with_word) continue;
      const auto* data = static_cast<const char*>(tensor.data);
      tensors.push_back({tensor.name, tensor.dtype, tensor.shape, {data, data + tensor.bytes}});
    }
  };
  take(Checkpoint(quantized.path()), false);
  take(Checkpoint(plain.path()), true);
  std::ofstream(quantized.path() / "model.safetensors", std::ios::binary)
      << safetensors_file(tensors);
}

// config.json doesn't say that the tool has left them out: half of their features go to each
// device, and of quantized ones two thirds and a third would.
TEST(EngineRanksQuantized, AdaptersGoOverWhatIsNotQuantizedInTheFile) {
  const GoldenCase golden = load_golden_case("llama");
  const TempFolder quantized, plain;
  write_quantized(golden.folder, Tool::kGptq, quantized.path(), plain.path());
  leave_out(".mlp.", quantized, plain);
  expect_adapted_as_one_device(golden, options_for(quantized.path().string(), 1), 2, {});
}

// No backend keeps kv_b_proj as codes: heads take their parts of it as numbers, some transposed.
TEST(EngineRanksQuantized, LatentHeadsAnswerAsTheirNumbers) {
  for (const Tool tool : {Tool::kGptqActOrder, Tool::kAwq, Tool::kPacked, Tool::kInt8}) {
    SCOPED_TRACE(static_cast<int>(tool));
    const GoldenCase golden = load_golden_case("deepseek_v2");
    const TempFolder quantized, plain;
    write_quantized(golden.folder, tool, quantized.path(), plain.path());
    for (const char* word : {".mlp.", "q_proj", "kv_a_proj", "o_proj"}) {
      leave_out(word, quantized, plain);
    }
    const auto answers = [&](const TempFolder& folder) {
      return run(*start(options_for(folder.path().string(), 1)), prompts_of(golden), 8, true);
    };
    EXPECT_EQ(distance(answers(quantized), answers(plain)), 0.0);
  }
}

}  // namespace
}  // namespace headrace
