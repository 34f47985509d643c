// Whole models whose experts are codes that meet codes, on the CUDA backend: FP8 and int8 with
// rounded activations, from checkpoints and made at load.

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "cuda/host/support/expect_rounded.h"
#include "cuda/host/support/generate.h"
#include "cuda/host/support/gpu_under_test.h"
#include "cuda/host/support/rounded_checkpoint.h"
#include "model/config/quantization.h"

namespace headrace {
namespace {

std::string folder_of(const std::string& name) {
  return std::filesystem::path(HEADRACE_GOLDEN_DIR) / name;
}

class CudaRoundedExperts : public testing::TestWithParam<std::tuple<std::string, RoundedTool>> {};

TEST_P(CudaRoundedExperts, AreKeptAsTheyCome) {
  const auto& [name, tool] = GetParam();
  const TempFolder folder;
  write_rounded(folder_of(name), tool, folder.path());
  expect_rounded(folder.path(), {}, folder_of(name), true);
}

// In bfloat16: a prompt in pieces, and beside another sequence.
TEST_P(CudaRoundedExperts, SameBitsInOtherCompany) {
  const auto& [name, tool] = GetParam();
  const TempFolder folder;
  write_rounded(folder_of(name), tool, folder.path());
  const HarnessOptions half{.storage = DType::kBF16, .kv_dtype = DType::kBF16};
  DecoderHarness harness(make_gpu_under_test(DType::kBF16), folder.path(), half);
  const auto tokens = prompt(40, 3);
  harness.start(0, 40);
  const auto whole = harness.step({{0, tokens}}).back();
  const auto next = harness.step({{0, {5}}}).front();
  harness.start(1, 40);
  harness.start(2, 40);
  harness.step({{1, {tokens.begin(), tokens.begin() + 3}}});
  const std::vector<int32_t> rest(tokens.begin() + 3, tokens.end());
  const auto together = harness.step({{2, prompt(30, 8)}, {1, rest}});
  EXPECT_EQ(together.back(), whole);
  EXPECT_EQ(harness.step({{1, {5}}, {2, {9}}}).front(), next);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, CudaRoundedExperts,
                         testing::Values(std::tuple("qwen3_moe", RoundedTool::kFloat8Blocks),
                                         std::tuple("mixtral", RoundedTool::kFloat8Channel),
                                         std::tuple("qwen2_moe", RoundedTool::kInt8Channel),
                                         std::tuple("ernie4_5_moe_interval",
                                                    RoundedTool::kFloat8Tensor)),
                         [](const auto& test) { return std::get<0>(test.param); });

class CudaExpertsToFloat8 : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(CudaExpertsToFloat8, AtLoad) {
  const auto& [name, quantization] = GetParam();
  expect_rounded(folder_of(name), {.quantization = parse_quantization(quantization, 0)},
                 folder_of(name), false);
}

INSTANTIATE_TEST_SUITE_P(Families, CudaExpertsToFloat8,
                         testing::Values(std::tuple("qwen3_moe_fused", "fp8"),
                                         std::tuple("qwen2_moe", "block_wise_fp8"),
                                         std::tuple("ernie4_5_moe_interval", "fp8")),
                         [](const auto& test) { return std::get<0>(test.param); });

}  // namespace
}  // namespace headrace
