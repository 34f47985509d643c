// Checkpoints whose towers a tool has quantized.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "backend/cpu/cpu_backend.h"
#include "base/check.h"
#include "cpp/model/checkpoint_files.h"
#include "cpp/model/expect_error.h"
#include "cpp/model/golden_case.h"
#include "cpp/model/test_json.h"
#include "cpp/model/vision/tower_harness.h"
#include "cpp/model/vision/vision_golden.h"
#include "model/checkpoint/checkpoint.h"
#include "model/quantized/scaled_float4.h"
#include "tensor/float4.h"
#include "tensor/float8.h"

namespace headrace {
namespace {

const Json kInt8 = {
    {"quant_method", "compressed-tensors"},
    {"format", "int-quantized"},
    {"config_groups",
     {{"group_0",
       {{"targets", {"Linear"}}, {"weights", {{"num_bits", 8}, {"strategy", "channel"}}}}}}}};
const Json kFloat8 = {{"quant_method", "fp8"}};
const Json kMxfp4 = {{"quant_method", "compressed-tensors"},
                     {"format", "mxfp4-pack-quantized"},
                     {"config_groups",
                      {{"group_0",
                        {{"targets", {"Linear"}},
                         {"weights",
                          {{"num_bits", 4},
                           {"type", "float"},
                           {"strategy", "group"},
                           {"group_size", kMxBlock},
                           {"symmetric", true},
                           {"scale_dtype", "torch.uint8"}}}}}}}};

/// A linear [n, k] of the tower, as a tool may have rounded it.
struct Rounded {
  std::string codes;           ///< a byte each, or a byte for two of MXFP4
  std::vector<float> scales;   ///< [n], or empty:
  std::string block_scales;    ///< [n, k / kMxBlock] e8m0
  std::vector<float> numbers;  ///< what they mean
};

/// Scales have so few bits that float16 holds them.
Rounded to_int8(const std::vector<float>& weight, int64_t n, int64_t k) {
  Rounded out;
  for (int64_t row = 0; row < n; ++row) {
    const float* own = weight.data() + row * k;
    float top = 0.0f;
    for (int64_t i = 0; i < k; ++i) top = std::max(top, std::abs(own[i]));
    out.scales.push_back(bf16_to_f32(f32_to_bf16(top / 127.0f)));
    for (int64_t i = 0; i < k; ++i) {
      const float code = std::clamp(std::nearbyint(own[i] / out.scales.back()), -127.0f, 127.0f);
      out.codes.push_back(static_cast<char>(code));
      out.numbers.push_back(code * out.scales.back());
    }
  }
  return out;
}

/// Codes of all kinds but NaN, whatever the weight was.
Rounded to_float8(const std::vector<float>& /*weight*/, int64_t n, int64_t k) {
  Rounded out;
  std::minstd_rand random(7);
  for (int64_t row = 0; row < n; ++row) {
    out.scales.push_back(0.001f * static_cast<float>(1 + row % 5));
    for (int64_t i = 0; i < k; ++i) {
      auto code = static_cast<uint8_t>(random() % 256);
      if ((code & 0x7f) == 0x7f) --code;
      out.codes.push_back(static_cast<char>(code));
      out.numbers.push_back(e4m3_to_f32(code) * out.scales.back());
    }
  }
  return out;
}

/// Likewise.
Rounded to_mxfp4(const std::vector<float>& /*weight*/, int64_t n, int64_t k) {
  Rounded out;
  std::minstd_rand random(8);
  for (int64_t i = 0; i < n * k; ++i) {
    if (i % kMxBlock == 0) out.block_scales.push_back(static_cast<char>(118 + random() % 5));
    const auto code = static_cast<uint8_t>(random() % 16);
    if (i % 2 == 0) {
      out.codes.push_back(static_cast<char>(code));
    } else {
      out.codes.back() = static_cast<char>(static_cast<uint8_t>(out.codes.back()) | code << 4);
    }
    const auto scale = static_cast<uint8_t>(out.block_scales.back());
    out.numbers.push_back(e2m1_to_f32(code) * e8m0_to_f32(scale));
  }
  return out;
}

struct Form {
  const Json& config;
  DType dtype;
  Rounded (*round)(const std::vector<float>&, int64_t, int64_t);
};

const Form kForms[] = {{kInt8, DType::kI8, to_int8}, {kFloat8, DType::kF8E4M3, to_float8}};
const Form kMxfp4Form{kMxfp4, DType::kF4E2M1, to_mxfp4};

/// Which tensors are rounded.
using Choose = bool (*)(const CheckpointTensor&);

bool is_tower_linear(const CheckpointTensor& tensor) {
  const bool tower = tensor.name.find("vis") != std::string::npos ||
                     tensor.name.find("resampler") != std::string::npos ||
                     tensor.name.find("connector") != std::string::npos;
  return tower && tensor.shape.size() == 2 && tensor.name.ends_with(".weight") &&
         tensor.name.find("pos") == std::string::npos;
}

/// Of a golden checkpoint, which has bf16 or float32.
std::vector<float> numbers_of(const CheckpointTensor& tensor) {
  std::vector<float> out(tensor.bytes / dtype_size(tensor.dtype));
  if (tensor.dtype == DType::kF32) {
    std::memcpy(out.data(), tensor.data, tensor.bytes);
    return out;
  }
  HEADRACE_CHECK(tensor.dtype == DType::kBF16, tensor.name);
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, static_cast<const char*>(tensor.data) + 2 * i, sizeof bits);
    out[i] = bf16_to_f32(bits);
  }
  return out;
}

bool fits_mxfp4(const CheckpointTensor& tensor) {
  return is_tower_linear(tensor) && tensor.shape[1] % kMxBlock == 0;
}

void append_codes(const CheckpointTensor& tensor, const Form& form, const Rounded& rounded,
                  std::vector<TensorToWrite>& out) {
  const int64_t n = tensor.shape[0];
  if (!rounded.block_scales.empty()) {
    const int64_t k = tensor.shape[1];
    out.push_back({tensor.name + "_packed", DType::kU8, {n, k / 2}, rounded.codes});
    out.push_back({tensor.name + "_scale", DType::kU8, {n, k / kMxBlock}, rounded.block_scales});
    return;
  }
  out.push_back({tensor.name, form.dtype, tensor.shape, rounded.codes});
  out.push_back({tensor.name + "_scale", DType::kF32, {n, 1}, encode(rounded.scales, DType::kF32)});
}

/// A golden model whose chosen tensors are rounded: as codes, or as the numbers that these mean.
void write_model(const TempFolder& folder, const std::string& name, const Form& form, bool as_codes,
                 Choose choose) {
  const std::filesystem::path from = load_vision_golden(name).folder;
  const Checkpoint checkpoint(from);
  std::vector<TensorToWrite> tensors;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    const std::vector<float> own = numbers_of(tensor);
    if (!choose(tensor)) {
      tensors.push_back({tensor.name, DType::kF32, tensor.shape, encode(own, DType::kF32)});
      continue;
    }
    const int64_t n = tensor.shape[0];
    const Rounded rounded = form.round(own, n, static_cast<int64_t>(own.size()) / n);
    if (!as_codes) {
      tensors.push_back(
          {tensor.name, DType::kF32, tensor.shape, encode(rounded.numbers, DType::kF32)});
      continue;
    }
    append_codes(tensor, form, rounded, tensors);
  }
  Json config = Json::parse(read_golden_text(from / "config.json"));
  if (as_codes) config["quantization_config"] = form.config;
  folder.write("config.json", config.dump());
  folder.write("model.safetensors", safetensors_file(tensors));
}

std::vector<float> rows_of(const TempFolder& folder, const VisionGolden::Item& item,
                           const Quantization& quantization = {}) {
  TowerHarness harness(available_cpu_isas().front(), folder.path(), DType::kF32, 2, quantization);
  return harness.encode(item.patches, item.grid);
}

class StoredTower : public testing::TestWithParam<std::string> {};

// FP8 is read as numbers, so that nothing differs; int8 codes round activations, too.
TEST_P(StoredTower, MeansWhatItsCodesMean) {
  const VisionGolden golden = load_vision_golden(GetParam());
  const VisionGolden::Item& item = golden.items.front();
  for (const Form& form : kForms) {
    SCOPED_TRACE(dtype_name(form.dtype));
    const TempFolder codes, plain;
    write_model(codes, GetParam(), form, true, is_tower_linear);
    write_model(plain, GetParam(), form, false, is_tower_linear);
    const std::vector<float> got = rows_of(codes, item), want = rows_of(plain, item);
    if (form.dtype == DType::kF8E4M3) {
      EXPECT_EQ(got, want);
      continue;
    }
    double squares = 0.0;
    for (size_t i = 0; i < got.size(); ++i) {
      squares += (double{got[i]} - double{want[i]}) * (double{got[i]} - double{want[i]});
    }
    const double error = std::sqrt(squares / static_cast<double>(got.size()));
    EXPECT_GT(error, 0.0);
    EXPECT_LE(error, 4.0 * golden.bfloat16_rms);  // tower_int8_test.cc derives it
  }
}

// The numbers may stay codes, whose sums are in another order: float32 rounds them otherwise.
TEST_P(StoredTower, Mxfp4IsReadAsNumbersOrKept) {
  const VisionGolden golden = load_vision_golden(GetParam());
  const VisionGolden::Item& item = golden.items.front();
  const TempFolder codes, plain;
  write_model(codes, GetParam(), kMxfp4Form, true, fits_mxfp4);
  write_model(plain, GetParam(), kMxfp4Form, false, fits_mxfp4);
  const std::vector<float> want = rows_of(plain, item);
  EXPECT_EQ(rows_of(codes, item), want);
  const std::vector<float> kept = rows_of(codes, item, {.float4_weights = true});
  EXPECT_NE(kept, want);
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(kept[i], want[i], 2.0 * golden.row_tolerance) << i;
  }
  const Checkpoint checkpoint(codes.path());
  EXPECT_TRUE(std::ranges::any_of(checkpoint.tensors(), [](const CheckpointTensor& tensor) {
    return tensor.name.ends_with("_packed");
  }));
}

std::vector<std::string> untransposed_names() {
  std::vector<std::string> out = vision_golden_names();
  std::erase(out, "ernie4_5_vl_paddle");  // no tool writes codes in that layout
  return out;
}

INSTANTIATE_TEST_SUITE_P(Cases, StoredTower, testing::ValuesIn(untransposed_names()),
                         [](const auto& test) { return test.param; });

TEST(StoredTowers, WhatCannotBeReadIsRefusedByName) {
  const auto refused = [](const char* name, const Form& form, Choose choose, const char* tensor) {
    const TempFolder folder;
    write_model(folder, name, form, true, choose);
    expect_error(ErrorCode::kUnsupported, {tensor},
                 [&] { TowerHarness(available_cpu_isas().front(), folder.path()); });
  };
  const Choose is_convolution = [](const CheckpointTensor& t) { return t.shape.size() > 2; };
  for (const Form& form : kForms) {
    refused("qwen2_vl", form, is_convolution, "visual.patch_embed.proj.weight");
  }
  const Choose is_key = [](const CheckpointTensor& t) {
    return t.name.ends_with("vision_model.encoder.layers.1.self_attn.k_proj.weight");
  };
  refused("smolvlm", kForms[0], is_key, "encoder.layers.1.self_attn.k_proj");
}

}  // namespace
}  // namespace headrace
