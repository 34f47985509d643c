// Codes that meet codes on the CUDA backend: FP8 and int8 with rounded activations, one by one and
// in whole models.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "cpp/model/expect_error.h"
#include "cuda/host/support/expect_rounded.h"
#include "cuda/host/support/generate.h"
#include "cuda/host/support/gpu_under_test.h"
#include "cuda/host/support/rounded_checkpoint.h"
#include "cuda/host/support/uploaded.h"
#include "model/config/quantization.h"
#include "parity/quant/random_codes.h"

namespace headrace {
namespace {

constexpr int64_t kInputs = 300, kFirst = 70, kSecond = 60, kOutputs = kFirst + kSecond;

std::vector<float> multiply(Backend& backend, DType dtype, const PackedWeight& weight,
                            const std::vector<float>& x) {
  const auto rows = static_cast<int64_t>(x.size()) / weight.k();
  const Uploaded in(backend, dtype, rows, weight.k(), x);
  const Uploaded out(backend, DType::kF32, rows, weight.n());
  backend.linear(in.view(), weight, {}, out.view());
  return out.read();
}

std::vector<float> absolute(std::vector<float> values) {
  for (float& x : values) x = std::abs(x);
  return values;
}

class CudaRoundedFormat : public testing::TestWithParam<Activations> {
 protected:
  const QuantFormat format_{.bits = 8, .group_size = 128, .activations = GetParam()};
  parity::Random random_{71};
};

// Both round rows and weights to the same codes: sums differ by a rounding for each product of 32 k
// (at most one for each k), each unit's scale and sum, and each slice.
TEST_P(CudaRoundedFormat, MatchesTheReference) {
  SCOPED_TRACE(random_.trace());
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const auto gpu = make_gpu_under_test(dtype);
    const auto oracle = make_rounding_reference(*gpu);
    const auto numbers = random_.uniforms(kOutputs * kInputs);
    const std::vector<float> upper(numbers.begin(), numbers.begin() + kFirst * kInputs);
    const std::vector<float> lower(numbers.begin() + kFirst * kInputs, numbers.end());
    const parity::StoredMatrix first(upper, kFirst, kInputs, DType::kBF16);
    const parity::StoredMatrix second(lower, kSecond, kInputs, DType::kF32, true, 3);
    const parity::StoredMatrix first_sizes(absolute(upper), kFirst, kInputs, DType::kBF16);
    const parity::StoredMatrix second_sizes(absolute(lower), kSecond, kInputs, DType::kF32, true,
                                            3);
    const auto sizes = oracle->pack_weight(
        {{first_sizes.part(), second_sizes.part()}, DType::kF32, WeightUse::kLinear, format_});
    for (const WeightUse use : {WeightUse::kLinear, WeightUse::kGateUp}) {
      const WeightSpec spec{{first.part(), second.part()}, dtype, use, format_};
      WeightSpec wide = spec;
      wide.storage = DType::kF32;
      const auto on_gpu = gpu->pack_weight(spec), wanted = oracle->pack_weight(wide);
      for (const int64_t rows : {1, 40}) {
        auto x = random_.uniforms(rows * kInputs);
        for (float& one : x) one = round_to(dtype, one);
        const auto got = multiply(*gpu, dtype, *on_gpu, x);
        const auto want = multiply(*oracle, DType::kF32, *wanted, x);
        const auto size = multiply(*oracle, DType::kF32, *sizes, absolute(x));
        for (size_t i = 0; i < want.size(); ++i) {
          ASSERT_NEAR(got[i], want[i], (double{kInputs} + 3 * 3 + 4 + 8) * 0x1p-24 * size[i]) << i;
        }
      }
    }
  }
}

TEST_P(CudaRoundedFormat, Restored) {
  const auto gpu = make_gpu_under_test(DType::kBF16);
  const auto numbers = random_.uniforms(kFirst * kInputs);
  const parity::StoredMatrix all(numbers, kFirst, kInputs, DType::kF32);
  const auto weight = gpu->pack_weight({{all.part()}, DType::kBF16, WeightUse::kLinear, format_});
  const WeightShape shape{kFirst, kInputs, DType::kBF16, WeightUse::kLinear, format_};
  ASSERT_EQ(weight->bytes(), gpu->packed_bytes(shape));
  EXPECT_LT(weight->bytes(), size_t{128 * 384} * 11 / 10);
  EXPECT_NE(gpu->weight_layout(DType::kBF16, format_),
            gpu->weight_layout(DType::kBF16,
                               {.bits = 8, .group_size = 128, .activations = Activations::kWhole}));
  std::vector<std::byte> bytes(weight->bytes());
  gpu->read_back(weight->data(), bytes.data(), bytes.size());
  Backend::Buffer buffer = gpu->allocate(bytes.size());
  gpu->upload(bytes.data(), buffer.data, bytes.size());
  const auto restored = gpu->restore_weight(shape, std::move(buffer));
  auto x = random_.uniforms(2 * kInputs);
  for (float& one : x) one = round_to(DType::kBF16, one);
  EXPECT_EQ(multiply(*gpu, DType::kBF16, *restored, x), multiply(*gpu, DType::kBF16, *weight, x));
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaRoundedFormat,
                         testing::Values(Activations::kInt8Rows, Activations::kFloat8Rows,
                                         Activations::kFloat8Groups));

// --- whole models ---

void load_on_gpu(const std::string& folder) {
  DecoderHarness(make_gpu_under_test(DType::kF32), folder, HarnessOptions{});
}

class CudaRoundedCheckpoint : public testing::TestWithParam<RoundedTool> {};

TEST_P(CudaRoundedCheckpoint, IsKeptAsItComes) {
  const TempFolder folder;
  write_rounded(llama_folder(), GetParam(), folder.path());
  expect_rounded(folder.path(), {}, llama_folder(), true);
}

// A row's tokens in bfloat16: alone, and as a prompt in pieces.
TEST_P(CudaRoundedCheckpoint, SameBitsInPieces) {
  const TempFolder folder;
  write_rounded(llama_folder(), GetParam(), folder.path());
  const HarnessOptions half{.storage = DType::kBF16, .kv_dtype = DType::kBF16};
  DecoderHarness harness(make_gpu_under_test(DType::kBF16), folder.path(), half);
  const auto tokens = prompt(40, 3);
  harness.start(0, 40);
  const auto whole = harness.step({{0, tokens}}).back();
  harness.start(1, 40);
  harness.step({{1, {tokens.begin(), tokens.begin() + 3}}});
  EXPECT_EQ(harness.step({{1, {tokens.begin() + 3, tokens.end()}}}).back(), whole);
}

TEST_P(CudaRoundedCheckpoint, HostileScalesAreRefused) {
  const float bad[] = {std::nanf(""), std::numeric_limits<float>::infinity(), 1e37f};
  for (const float scale : bad) {
    const TempFolder folder;
    write_rounded(llama_folder(), GetParam(), folder.path(), [&](TensorToWrite& tensor) {
      if (tensor.name != "model.layers.1.mlp.down_proj.weight_scale" &&
          tensor.name != "model.layers.1.mlp.down_proj.weight_scale_inv") {
        return;
      }
      std::memcpy(tensor.bytes.data(), &scale, sizeof scale);
    });
    expect_error(ErrorCode::kCorruptFile, {"model.layers.1.mlp.down_proj.weight_scale", "NaN"},
                 [&] { load_on_gpu(folder.path()); });
  }
  const TempFolder folder;
  write_rounded(llama_folder(), GetParam(), folder.path(), [&](TensorToWrite& tensor) {
    if (tensor.name.find("layers.1.mlp.down_proj.weight_scale") == std::string::npos) return;
    tensor.shape = {7};
    tensor.bytes.resize(28);
  });
  expect_error(ErrorCode::kCorruptFile, {"model.layers.1.mlp.down_proj.weight_scale"},
               [&] { load_on_gpu(folder.path()); });
}

INSTANTIATE_TEST_SUITE_P(Tools, CudaRoundedCheckpoint,
                         testing::Values(RoundedTool::kFloat8Tensor, RoundedTool::kFloat8Blocks,
                                         RoundedTool::kFloat8Channel, RoundedTool::kInt8Channel));

TEST(CudaRoundedModel, OfCodesThatAreNan) {
  const TempFolder folder;
  write_rounded(llama_folder(), RoundedTool::kFloat8Blocks, folder.path(),
                [](TensorToWrite& tensor) {
                  if (tensor.name == "model.layers.0.self_attn.v_proj.weight") {
                    tensor.bytes[65] = '\x7f';
                  }
                });
  expect_error(ErrorCode::kCorruptFile, {"model.layers.0.self_attn.v_proj.weight", "NaN"},
               [&] { load_on_gpu(folder.path()); });
}

TEST(CudaRoundedModel, AtLoad) {
  for (const char* name : {"fp8", "block_wise_fp8"}) {
    expect_rounded(llama_folder(), {.quantization = parse_quantization(name, 0)}, llama_folder(),
                   false);
  }
}

}  // namespace
}  // namespace headrace
