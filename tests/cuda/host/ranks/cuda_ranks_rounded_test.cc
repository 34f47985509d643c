// FP8 whose rows are rounded, too, on several GPUs of the fake runtime. (Golden models are narrower
// than a group of 128 inputs for each.)

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "backend/host/weight_source.h"
#include "base/mapped_file.h"
#include "cpp/model/checkpoint_files.h"
#include "cpp/model/decoder_harness.h"
#include "cpp/model/golden_case.h"
#include "cpp/model/quantized_checkpoint.h"
#include "cpp/model/test_json.h"
#include "cuda/host/support/engine_requests.h"
#include "cuda/host/support/expect_rounded.h"
#include "cuda/host/support/gpu_under_test.h"
#include "cuda/host/support/rank_devices.h"
#include "cuda/host/support/rounded_checkpoint.h"
#include "model/checkpoint/checkpoint.h"

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

double logprob(const std::vector<float>& logits, int32_t token) {
  const double best = std::ranges::max(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - best);
  return logits[static_cast<size_t>(token)] - best - std::log(sum);
}

/// The largest distance from what the oracle says of the same tokens.
double distance_from(DecoderHarness& oracle, const std::vector<std::vector<int32_t>>& prompts,
                     const std::vector<Output>& got) {
  double out = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].error_message, "");
    oracle.start(0, static_cast<int32_t>(prompts[i].size()));
    std::vector<float> logits = oracle.step({{0, prompts[i]}}).back();
    for (size_t t = 0; t < got[i].logprobs.size(); ++t) {
      const int32_t token = got[i].token_ids[t];
      out = std::max(out, std::abs(got[i].logprobs[t].logprob - logprob(logits, token)));
      logits = oracle.step({{0, {token}}}).back();
    }
  }
  return out;
}

// Two GPUs share each expert's 256 inputs, a group of 128 each, or have 10 experts each. Codes and
// their products are those of one GPU, whose distance d from the oracle is what float32 does to
// this model; where sums have another order it may be 4 d, as tests/golden/README.md derives. (Of
// the 10^5 activations of longer prompts one or two lie so near the middle of two codes that
// another order tips them; of these prompts' none does.)
TEST(CudaTensorParallelFloat8, ExpertsAnswerAsOnOneGpu) {
  const TempFolder plain, quantized;
  write_wide(plain.path());
  write_rounded(plain.path(), RoundedTool::kFloat8Blocks, quantized.path());
  DecoderHarness oracle(make_rounding_reference(*make_gpu_under_test(DType::kF32)),
                        quantized.path(), {});
  ModelOptions options = options_for(load_golden_case("qwen3_moe"));
  options.path = quantized.path();
  const std::vector<std::vector<int32_t>> prompts = {prompt(9, 3), prompt(7, 9), prompt(5, 20),
                                                     prompt(8, 31)};
  const auto answers = [&](int32_t ranks, bool whole_experts) {
    RankDevices devices(ranks);
    options.enable_expert_parallel = whole_experts;
    devices.start(options, ranks);
    return devices.run(prompts, 5, true);
  };
  const std::vector<Output> alone = answers(1, false);
  const double error = distance_from(oracle, prompts, alone);
  EXPECT_GT(error, 0.0);
  EXPECT_LT(error, 1e-4) << "rows were rounded to other codes";
  for (const bool whole_experts : {false, true}) {
    SCOPED_TRACE(whole_experts);
    const std::vector<Output> several = answers(2, whole_experts);
    EXPECT_LE(distance_from(oracle, prompts, several), 4 * error);
    EXPECT_LE(distance(several, alone), 5 * error);
  }
}

}  // namespace
}  // namespace headrace
