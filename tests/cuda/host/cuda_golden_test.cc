// The decoder on the CUDA backend against transformers' answers.

#include <gtest/gtest.h>

#include "base/mapped_file.h"
#include "cpp/model/golden_case.h"
#include "cpp/model/golden_expect.h"
#include "cpp/model/test_json.h"
#include "cuda/host/support/expect_rounded.h"
#include "cuda/host/support/gpu_under_test.h"
#include "model/load/load_config.h"

namespace headrace {
namespace {

class CudaGolden : public testing::TestWithParam<std::string> {};
class CudaGoldenBfloat16 : public CudaGolden {};
class CudaGoldenRounded : public CudaGolden {};

TEST_P(CudaGolden, Float32SaysWhatTransformersSay) {
  const GoldenCase golden = load_golden_case(GetParam());
  DecoderHarness harness(make_gpu_under_test(DType::kF32), golden.folder, {});
  expect_float32_answers(harness, golden);
}

// Activations are bfloat16 here as there, rounded in other places, so errors are of one size but
// independent. Their root mean square may be no larger than transformers'. The largest of some
// thousand normal errors is about 3.7 sigma, give or take 0.3, more where a row's errors share
// their cause: the ratio of two such scatters by 12 % or more, and 1.5 is some four times that.
// What is wrong in kind (a position, a mask, a scale) moves the root mean square, and the float32
// cases.
TEST_P(CudaGoldenBfloat16, IsNoWorseThanTransformers) {
  const GoldenCase golden = load_golden_case(GetParam());
  DecoderHarness harness(make_gpu_under_test(DType::kBF16), golden.folder,
                         {.storage = DType::kBF16, .kv_dtype = DType::kBF16});
  expect_bfloat16_answers(harness, golden, 1.5);
}

// FP8 of which transformers multiplied the numbers: here rows are rounded, too.
TEST_P(CudaGoldenRounded, SaysWhatTheReferenceSaysOfRoundedRows) {
  const GoldenCase golden = load_golden_case(GetParam());
  const auto gpu = make_gpu_under_test(DType::kF32);
  DecoderHarness harness(gpu, golden.folder, {});
  DecoderHarness oracle(make_rounding_reference(*gpu), golden.folder, {});
  expect_rounded_answers(harness, oracle, golden);
}

/// What PEFT answers with adapters that it saved: tests/golden/make_lora.py.
TEST(CudaGoldenLora, AnswersAsPeftDoes) {
  const std::filesystem::path golden = HEADRACE_GOLDEN_DIR;
  const Json all = Json::parse(read_small_file(golden / "lora/expected.json", 1 << 20));
  for (const auto& [name, expected] : all.items()) {
    SCOPED_TRACE(name);
    DecoderHarness harness(make_gpu_under_test(DType::kF32),
                           golden / expected.at("case").get<std::string>(), {.max_loras = 1});
    const auto adapter = harness.load_lora(golden / "lora" / name);
    auto next = expected.at("prompt").get<std::vector<int32_t>>();
    harness.start(0, static_cast<int32_t>(next.size()));
    for (const int32_t token : expected.at("tokens").get<std::vector<int32_t>>()) {
      ASSERT_EQ(argmax(harness.step({{0, next, adapter.get()}}).back()), token);
      next = {token};
    }
  }
}

/// Those whose rows are rounded, or the others.
std::vector<std::string> float32_cases(bool rounded) {
  std::vector<std::string> out;
  for (const std::string& name : golden_case_names()) {
    const ModelConfig config = load_model_config(load_golden_case(name).folder);
    if (config.stored_quantization.rounded_rows == rounded) out.push_back(name);
  }
  return out;
}

std::vector<std::string> bfloat16_cases() {
  std::vector<std::string> out;
  for (const std::string& name : golden_case_names()) {
    const GoldenCase golden = load_golden_case(name);
    // Where experts are near, another rounding chooses others, and logits jump:
    // cuda_choices_test.cc.
    if (golden.bfloat16.present && !golden.routed) out.push_back(name);
  }
  return out;
}

std::string name_of(const testing::TestParamInfo<std::string>& test) { return test.param; }

// One of each family, for the emulation takes minutes for all of them, and under AddressSanitizer
// for these: --gtest_also_run_disabled_tests --gtest_filter='*All*'
#if defined(HEADRACE_ASAN)
INSTANTIATE_TEST_SUITE_P(Families, CudaGolden, testing::Values("qwen2_yarn"), name_of);
INSTANTIATE_TEST_SUITE_P(Families, CudaGoldenBfloat16, testing::Values("ernie4_5", "qwen3"),
                         name_of);
#else
INSTANTIATE_TEST_SUITE_P(Families, CudaGolden,
                         testing::Values("cohere2", "deepseek_v2", "ernie4_5_bias_paddle",
                                         "ernie4_5_moe", "falcon_h1", "gemma2", "gemma4_text",
                                         "gemma4_moe", "glm4_moe_groups", "glm4_moe_lite",
                                         "gpt_oss", "granite_hybrid", "lfm2", "llama3_rope",
                                         "mistral_window", "mixtral", "nemotron_h_moe",
                                         "qwen2_moe_norm", "qwen2_yarn", "qwen3_5", "qwen3_moe_one",
                                         "qwen3_window"),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Families, CudaGoldenRounded, testing::Values("llama_fp8"), name_of);
INSTANTIATE_TEST_SUITE_P(Families, CudaGoldenBfloat16,
                         testing::Values("ernie4_5", "llama_bf16", "qwen2_window", "qwen3",
                                         "qwen3_5"),
                         name_of);
#endif
// All of them: `tests/run goldens` runs them, and tests/gpu/run.sh on a GPU.
INSTANTIATE_TEST_SUITE_P(DISABLED_All, CudaGolden,  // minutes in the emulation
                         testing::ValuesIn(float32_cases(false)), name_of);
INSTANTIATE_TEST_SUITE_P(DISABLED_All, CudaGoldenRounded,  // minutes in the emulation
                         testing::ValuesIn(float32_cases(true)), name_of);
INSTANTIATE_TEST_SUITE_P(DISABLED_All, CudaGoldenBfloat16,  // minutes in the emulation
                         testing::ValuesIn(bfloat16_cases()), name_of);

}  // namespace
}  // namespace headrace
