// Whole models with quantized experts on the CUDA backend, from each kind of checkpoint.

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "backend/reference/reference_backend.h"
#include "cpp/model/checkpoint_files.h"
#include "cpp/model/quantized_checkpoint.h"
#include "cuda/host/support/generate.h"
#include "cuda/host/support/gpu_under_test.h"
#include "model/config/quantization.h"

namespace headrace {
namespace {

Rows generate(std::shared_ptr<Backend> backend, const std::string& folder,
              const HarnessOptions& options) {
  DecoderHarness harness(std::move(backend), folder, options);
  return generate_alone(harness, 0, prompt(24, 3), 6);
}

/// The same tokens, and logits that differ by no more than sums of float32 in another order do.
void expect_same(const Rows& got, const Rows& want) {
  ASSERT_EQ(got.size(), want.size());
  std::set<int32_t> tokens;
  for (size_t step = 0; step < want.size(); ++step) {
    ASSERT_EQ(argmax(got[step]), argmax(want[step])) << step;
    tokens.insert(argmax(want[step]));
    float largest = 0.0f;
    for (const float x : want[step]) largest = std::max(largest, std::abs(x));
    for (size_t i = 0; i < want[step].size(); ++i) {
      ASSERT_NEAR(got[step][i], want[step][i], 1e-4f * largest) << step << ", " << i;
    }
  }
  EXPECT_GT(tokens.size(), 1u);
}

std::string folder_of(const std::string& name) {
  return std::filesystem::path(HEADRACE_GOLDEN_DIR) / name;
}

class CudaQuantizedExperts : public testing::TestWithParam<std::tuple<std::string, Tool>> {};

// The oracle is the reference with what the codes mean in float32, activations unrounded.
TEST_P(CudaQuantizedExperts, SayWhatTheirNumbersSay) {
  const auto& [name, tool] = GetParam();
  const TempFolder quantized, plain;
  write_quantized(folder_of(name), tool, quantized.path(), plain.path());
  const Rows want = generate(make_reference_backend(), plain.path(), {});
  expect_same(generate(make_gpu_under_test(DType::kF32), quantized.path(), {}), want);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, CudaQuantizedExperts,
                         testing::Values(std::tuple("qwen3_moe", Tool::kGptq),
                                         std::tuple("mixtral", Tool::kAwq),
                                         std::tuple("qwen2_moe", Tool::kPacked),
                                         std::tuple("ernie4_5_moe", Tool::kInt8),
                                         std::tuple("ernie4_5_moe", Tool::kGptqActOrder),
                                         std::tuple("mixtral", Tool::kGptqActOrder)),
                         [](const auto& test) {
                           const bool act_order = std::get<1>(test.param) == Tool::kGptqActOrder;
                           return std::get<0>(test.param) + (act_order ? "_act_order" : "");
                         });

class CudaExpertsRoundedAtLoad
    : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(CudaExpertsRoundedAtLoad, SayWhatTheReferenceSays) {
  const auto& [name, quantization] = GetParam();
  const HarnessOptions options{.quantization = parse_quantization(quantization, 0)};
  expect_same(generate(make_gpu_under_test(DType::kF32), folder_of(name), options),
              generate(make_reference_backend(0, Activations::kWhole), folder_of(name), options));
}

INSTANTIATE_TEST_SUITE_P(
    Families, CudaExpertsRoundedAtLoad,
    testing::Values(std::tuple("ernie4_5_moe", "wint4"), std::tuple("mixtral", "wint8"),
                    std::tuple("qwen3_moe_fused", "wint4"), std::tuple("qwen2_moe", "wint8"),
                    std::tuple("vision/qwen3_vl_moe", "wint4"),
                    std::tuple("vision/ernie4_5_vl_moe", "wint8")),
    [](const auto& test) {
      std::string out = std::get<0>(test.param) + "_" + std::get<1>(test.param);
      return out.substr(out.find('/') == std::string::npos ? 0 : 7);
    });

}  // namespace
}  // namespace headrace
