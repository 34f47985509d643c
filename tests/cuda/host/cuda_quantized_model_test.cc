// Whole models of quantized weights on the CUDA backend.

#include <gtest/gtest.h>

#include <cmath>

#include "backend/reference/reference_backend.h"
#include "base/mapped_file.h"
#include "cpp/model/checkpoint_files.h"
#include "cpp/model/quantized_checkpoint.h"
#include "cpp/model/test_json.h"
#include "cuda/host/support/generate.h"
#include "cuda/host/support/gpu_under_test.h"
#include "model/config/quantization.h"

namespace headrace {
namespace {

constexpr int kSteps = 8;

Rows generate(std::shared_ptr<Backend> backend, const std::string& folder,
              const HarnessOptions& options) {
  DecoderHarness harness(std::move(backend), folder, options);
  return generate_alone(harness, 0, prompt(40, 3), kSteps);
}

/// Logits of the same sequence that gave `of`.
Rows follow(std::shared_ptr<Backend> backend, const std::string& folder,
            const HarnessOptions& options, const Rows& of) {
  DecoderHarness harness(std::move(backend), folder, options);
  harness.start(0, 40);
  Rows out = {harness.step({{0, prompt(40, 3)}}).back()};
  while (out.size() < of.size()) {
    out.push_back(harness.step({{0, {argmax(of[out.size() - 1])}}}).front());
  }
  return out;
}

/// The same tokens, and logits that differ by no more than sums of float32 in another order do.
void expect_same(const Rows& got, const Rows& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t step = 0; step < want.size(); ++step) {
    ASSERT_EQ(argmax(got[step]), argmax(want[step])) << step;
    float largest = 0.0f;
    for (const float x : want[step]) largest = std::max(largest, std::abs(x));
    for (size_t i = 0; i < want[step].size(); ++i) {
      ASSERT_NEAR(got[step][i], want[step][i], 1e-4f * largest) << step << ", " << i;
    }
  }
}

double rms(const Rows& a, const Rows& b) {
  double squares = 0.0;
  size_t count = 0;
  for (size_t step = 0; step < a.size(); ++step) {
    for (size_t i = 0; i < a[step].size(); ++i, ++count) {
      squares += std::pow(double{a[step][i]} - double{b[step][i]}, 2);
    }
  }
  return std::sqrt(squares / static_cast<double>(count));
}

class CudaQuantizedCheckpoint : public testing::TestWithParam<Tool> {};

// The oracle is the reference with what the codes mean in float32, activations unrounded.
TEST_P(CudaQuantizedCheckpoint, SaysWhatItsNumbersSay) {
  const TempFolder quantized, plain;
  write_quantized(llama_folder(), GetParam(), quantized.path(), plain.path());
  const Rows want = generate(make_reference_backend(), plain.path(), {});
  expect_same(generate(make_gpu_under_test(DType::kF32), quantized.path(), {}), want);
}

INSTANTIATE_TEST_SUITE_P(Tools, CudaQuantizedCheckpoint,
                         testing::Values(Tool::kGptqActOrder, Tool::kAwq, Tool::kPacked,
                                         Tool::kInt8));

// Codes are exact in bfloat16, which what they mean isn't: with them a step is no further from
// float32's than with the numbers rounded, give or take the scatter of eight rows.
TEST(CudaQuantizedBfloat16, IsNoWorseThanItsNumbers) {
  const TempFolder quantized, plain;
  write_quantized(llama_folder(), Tool::kGptqActOrder, quantized.path(), plain.path());
  const Rows want = generate(make_reference_backend(), plain.path(), {});
  const HarnessOptions half{.storage = DType::kBF16, .kv_dtype = DType::kBF16};
  const Rows codes = follow(make_gpu_under_test(DType::kBF16), quantized.path(), half, want);
  const Rows numbers = follow(make_gpu_under_test(DType::kBF16), plain.path(), half, want);
  EXPECT_LE(rms(codes, want), 1.2 * rms(numbers, want));
  EXPECT_GT(rms(codes, want), 0.0);
}

class CudaRoundedAtLoad : public testing::TestWithParam<const char*> {};

TEST_P(CudaRoundedAtLoad, SaysWhatTheReferenceSays) {
  const HarnessOptions options{.quantization = parse_quantization(GetParam(), 0)};
  const Rows want =
      generate(make_reference_backend(0, Activations::kWhole), llama_folder(), options);
  expect_same(generate(make_gpu_under_test(DType::kF32), llama_folder(), options), want);
  // Rounding activations, as the CPU does, gives other numbers: the model asks for none.
  const Rows rounded = generate(make_reference_backend(), llama_folder(), options);
  EXPECT_GT(rms(rounded, want), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Names, CudaRoundedAtLoad, testing::Values("wint8", "wint4"));

// A tied embedding is the head, and looked up in.
TEST(CudaQuantizedModel, WithATiedHead) {
  const std::string folder = load_golden_case("llama_tied_mqa").folder;
  const HarnessOptions options{.quantization = parse_quantization("wint4", 0)};
  expect_same(generate(make_gpu_under_test(DType::kF32), folder, options),
              generate(make_reference_backend(0, Activations::kWhole), folder, options));
}

// FP8 numbers are rounded like any others, if that is asked for.
TEST(CudaQuantizedModel, OfFloat8) {
  const std::string folder = load_golden_case("llama_fp8").folder;
  const HarnessOptions options{.quantization = parse_quantization("wint4", 0)};
  expect_same(generate(make_gpu_under_test(DType::kF32), folder, options),
              generate(make_reference_backend(0, Activations::kWhole), folder, options));
}

TEST(CudaQuantizedModel, WithAnAdapter) {
  const std::filesystem::path golden = HEADRACE_GOLDEN_DIR;
  const Json all = Json::parse(read_small_file(golden / "lora/expected.json", 1 << 20));
  const std::string name = all.begin().key();
  const std::filesystem::path folder = golden / all.at(name).at("case").get<std::string>();
  const HarnessOptions options{.quantization = parse_quantization("wint8", 0), .max_loras = 1};
  const auto logits = [&, adapter = golden / "lora" / name](std::shared_ptr<Backend> backend,
                                                            bool adapted) {
    DecoderHarness harness(std::move(backend), folder, options);
    const auto lora = harness.load_lora(adapter);
    harness.start(0, 20);
    return harness.step({{0, prompt(20, 3), adapted ? lora.get() : nullptr}});
  };
  const Rows want = logits(make_reference_backend(0, Activations::kWhole), true);
  expect_same(logits(make_gpu_under_test(DType::kF32), true), want);
  EXPECT_GT(rms(logits(make_gpu_under_test(DType::kF32), false), want), 1e-3);
}

}  // namespace
}  // namespace headrace
