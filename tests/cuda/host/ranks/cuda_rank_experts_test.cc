// Experts in FP8 on several GPUs of the fake runtime.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "backend/host/weight_source.h"
#include "cpp/model/checkpoint_files.h"
#include "cpp/model/golden_case.h"
#include "cpp/model/quantized_checkpoint.h"
#include "cuda/host/support/engine_requests.h"
#include "cuda/host/support/rank_devices.h"
#include "cuda/host/support/rounded_checkpoint.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/mapped_file.h"
#include "model/config/json.h"

namespace headrace {
namespace {

/// Writes qwen3_moe to `to` with experts and MLPs of width 256 and heads of 64: numbers again and
/// again, smaller ones.
void write_wide(const std::filesystem::path& to) {
  const std::filesystem::path from = load_golden_case("qwen3_moe").folder;
  const Checkpoint checkpoint(from);
  std::vector<TensorToWrite> out;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    const auto in = [&](const char* part) { return tensor.name.find(part) != std::string::npos; };
    std::vector<float> values(tensor.bytes / dtype_size(tensor.dtype));
    read_elements(tensor.data, tensor.dtype, 1, static_cast<int64_t>(values.size()), values.data());
    std::vector<int64_t> shape = tensor.shape;
    const bool inputs = in("down_proj") || in("o_proj") || in("q_norm") || in("k_norm");
    int64_t& side = inputs ? shape.back() : shape.front();
    if (in("mlp.") && in("_proj")) {
      side = 256;
    } else if (in("self_attn.")) {
      side *= 2;
    }
    const int64_t n = shape.size() > 1 ? tensor.shape[0] : 1, k = tensor.shape.back();
    const int64_t rows = shape.size() > 1 ? shape[0] : 1, cols = shape.back();
    std::vector<float> wide;
    for (int64_t i = 0; i < rows * cols; ++i) {
      const auto turn = static_cast<float>(i / cols / n + i % cols / k);
      wide.push_back(values[static_cast<size_t>(i / cols % n * k + i % cols % k)] / (1 + turn));
    }
    out.push_back({tensor.name,
                   DType::kF32,
                   shape,
                   {reinterpret_cast<const char*>(wide.data()), wide.size() * sizeof(float)}});
  }
  Json config = Json::parse(read_small_file(from / "config.json", 1 << 20));
  config["moe_intermediate_size"] = config["intermediate_size"] = 256;
  config["head_dim"] = 64;
  std::ofstream(to / "config.json") << config.dump();
  std::ofstream(to / "model.safetensors", std::ios::binary) << safetensors_file(out);
}

// FP8 with rounded activations: two GPUs share each expert's 256 inputs, a group of 128 each, or
// have 10 experts each. Codes and their products are those of one GPU; their sums' order differs.
void expect_shared_experts() {
  const TempFolder plain, quantized;
  write_wide(plain.path());
  write_rounded(plain.path(), RoundedTool::kFloat8Blocks, quantized.path());
  ModelOptions options = options_for(load_golden_case("qwen3_moe"));
  options.path = quantized.path();
  const std::vector<std::vector<int32_t>> prompts = {prompt(30, 3), prompt(7, 9)};
  std::vector<Output> alone;
  struct Run {
    int32_t ranks;
    bool whole_experts = false;
  };
  for (const Run& run : {Run{1}, Run{2}, Run{2, true}}) {
    SCOPED_TRACE(::testing::Message()
                 << run.ranks << " GPUs, whole experts: " << run.whole_experts);
    RankDevices devices(run.ranks);
    options.enable_expert_parallel = run.whole_experts;
    devices.start(options, run.ranks);
    const std::vector<Output> got = devices.run(prompts, 8, true);
    if (alone.empty()) alone = got;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].error_message, "");
      ASSERT_EQ(got[i].token_ids, alone[i].token_ids);
      for (size_t t = 0; t < got[i].logprobs.size(); ++t) {
        EXPECT_NEAR(got[i].logprobs[t].logprob, alone[i].logprobs[t].logprob, 1e-4) << t;
      }
    }
  }
}

TEST(CudaTensorParallelFloat8, ExpertsAnswerAsOnOneGpu) { expect_shared_experts(); }

}  // namespace
}  // namespace headrace
