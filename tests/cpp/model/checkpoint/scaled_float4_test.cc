// Weights stored as MXFP4: what they say, and which files are refused.

#include "model/quantized/float4_codes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cpp/model/checkpoint_files.h"
#include "cpp/model/decoder_harness.h"
#include "cpp/model/expect_error.h"
#include "cpp/model/golden_case.h"
#include "model/load/list_sources.h"
#include "model/load/load_config.h"
#include "model/load/make_decoder.h"
#include "tensor/float4.h"

namespace headrace {
namespace {

constexpr int64_t kN = 2, kK = 64;

TEST(Float4, EveryCodeOfE2m1AndEveryScaleOfE8m0) {
  const float sizes[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  for (uint8_t bits = 0; bits < 8; ++bits) {
    EXPECT_EQ(std::bit_cast<uint32_t>(e2m1_to_f32(bits)), std::bit_cast<uint32_t>(sizes[bits]));
    EXPECT_EQ(std::bit_cast<uint32_t>(e2m1_to_f32(bits | 8)),
              std::bit_cast<uint32_t>(-sizes[bits]));
  }
  for (int bits = 0; bits < 255; ++bits) {
    EXPECT_EQ(e8m0_to_f32(static_cast<uint8_t>(bits)), std::ldexp(1.0f, bits - 127)) << bits;
  }
  EXPECT_TRUE(std::isnan(e8m0_to_f32(255)));
}

/// A folder with "a.weight_packed" and "a.weight_scale" of those shapes, as U8 unless it says else.
class Folder {
 public:
  Folder(std::vector<int64_t> codes_shape, std::vector<int64_t> scales_shape,
         const std::string& scales, DType dtype = DType::kU8) {
    std::string codes;
    for (int64_t i = 0; i < codes_shape[0] * codes_shape[1]; ++i) {
      codes.push_back(static_cast<char>(0x10 + 0x11 * i));
    }
    folder_.write("model.safetensors",
                  safetensors_file({{"a.weight_packed", dtype, codes_shape, codes},
                                    {"a.weight_scale", dtype, scales_shape, scales}}));
    checkpoint_ = std::make_unique<Checkpoint>(folder_.path());
  }

  ScaledFloat4 read(const std::string& stem = "a", int64_t k = kK) const {
    return ScaledFloat4(*checkpoint_, packed_float4(stem, kN, k), kN, k);
  }

 private:
  TempFolder folder_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

// The smallest and the largest scale, too: products below float32's normal numbers are exact.
TEST(ScaledFloat4, CodesTimesTheirBlocksScales) {
  const std::string scales = {'\x80', '\x00', '\x7e', '\xfc'};
  const Folder folder({kN, kK / 2}, {kN, kK / 32}, scales);
  const ScaledFloat4 weight = folder.read();
  EXPECT_EQ(weight.tensors(), (std::vector<std::string>{"a.weight_packed", "a.weight_scale"}));
  for (int64_t n = 0; n < kN; ++n) {
    std::vector<float> row(kK);
    weight.read(n, 0, 33, row.data());  // from an even input, and from an odd one
    weight.read(n, 33, kK - 33, row.data() + 33);
    for (int64_t k = 0; k < kK; ++k) {
      const auto pair = static_cast<uint8_t>(0x10 + 0x11 * (n * kK / 2 + k / 2));
      const double code = double{e2m1_to_f32(k % 2 == 0 ? pair & 15 : pair >> 4)};
      const int exponent = static_cast<uint8_t>(scales[size_t(n * 2 + k / 32)]) - 127;
      EXPECT_EQ(double{row[size_t(k)]}, std::ldexp(code, exponent)) << n << ", " << k;
    }
  }
}

// The bytes 10 21 32 43 ... at a scale of 2: the lower half of a byte comes first.
TEST(ScaledFloat4, ThePairsOrder) {
  const Folder folder({kN, kK / 2}, {kN, kK / 32}, std::string(4, '\x80'));
  std::vector<float> row(16);
  folder.read().read(0, 0, 16, row.data());
  EXPECT_EQ(row, (std::vector<float>{0, 1, 1, 2, 2, 3, 3, 4, 4, 6, 6, 8, 8, 12, 12, -0.0f}));
}

TEST(ScaledFloat4, WhatCannotBeIsRefusedByName) {
  const std::string four(4, '\x7f');
  const auto refused = [&](ErrorCode code, const char* tensor, const Folder& folder,
                           const std::string& stem = "a", int64_t k = kK) {
    expect_error(code, {tensor}, [&] { folder.read(stem, k); });
  };
  const ErrorCode corrupt = ErrorCode::kCorruptFile;
  const Folder good({kN, kK / 2}, {kN, kK / 32}, four);
  EXPECT_NO_THROW(good.read());
  refused(ErrorCode::kNotFound, "b.weight_packed", good, "b");
  refused(ErrorCode::kUnsupported, "a.weight_packed", good, "a", kK - 16);
  refused(corrupt, "a.weight_packed", good, "a", 2 * kK);
  refused(corrupt, "a.weight_packed", Folder({kN, kK}, {kN, kK / 32}, four));
  refused(corrupt, "a.weight_scale", Folder({kN, kK / 2}, {kK / 32 * kN, 1}, four));
  refused(ErrorCode::kUnsupported, "a.weight_packed",
          Folder({kN, kK / 2}, {kN, kK / 32}, four, DType::kI8));
  for (size_t at = 0; at < 4; ++at) {
    std::string scales = four;
    scales[at] = '\xff';
    refused(corrupt, "a.weight_scale", Folder({kN, kK / 2}, {kN, kK / 32}, scales));
  }
}

// gpt-oss's: of each expert's rows one below the other.
TEST(ScaledFloat4, BlocksOfExperts) {
  const int64_t experts = 2, rows = 3;
  const std::string pairs("\x10\x32\x54\x76\x98\xba\xdc\xfe\0\0\0\0\0\0\0\0", kMxBlock / 2);
  std::string codes, scales;
  for (int64_t i = 0; i < experts * rows; ++i) {
    codes += pairs;
    scales.push_back(static_cast<char>(128 + i));
  }
  const auto folder_with = [&](std::vector<int64_t> scales_shape, const std::string& bytes) {
    auto folder = std::make_unique<TempFolder>();
    folder->write("model.safetensors",
                  safetensors_file({{"a_blocks", DType::kU8, {experts, rows, 1, 16}, codes},
                                    {"a_scales", DType::kU8, std::move(scales_shape), bytes}}));
    return folder;
  };
  const Float4Tensors tensors = blocks_float4("a", experts, rows, kMxBlock);
  const auto folder = folder_with({experts, rows, 1}, scales);
  const Checkpoint checkpoint(folder->path());
  const ScaledFloat4 weight(checkpoint, tensors, experts * rows, kMxBlock);
  EXPECT_EQ(weight.tensors(), (std::vector<std::string>{"a_blocks", "a_scales"}));
  const float at_128[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  for (int64_t row = 0; row < experts * rows; ++row) {
    std::vector<float> numbers(kMxBlock);
    weight.read(row, 0, kMxBlock, numbers.data());
    for (size_t i = 0; i < numbers.size(); ++i) {
      EXPECT_EQ(numbers[i], i < 16 ? std::ldexp(at_128[i], static_cast<int>(row)) : 0.0f) << row;
    }
  }
  scales.back() = '\xff';
  for (const auto& other : {folder_with({experts, rows, 1}, scales),
                            folder_with({experts * rows, 1}, std::string(6, '\x7f'))}) {
    const Checkpoint bad(other->path());
    expect_error(ErrorCode::kCorruptFile, {"a_scales"},
                 [&] { ScaledFloat4(bad, tensors, experts * rows, kMxBlock); });
  }
}

/// What is attached to a checkpoint's linears with such a file and device.
std::vector<QuantFormat> formats_of(const char* name, const Quantization& quantization) {
  const GoldenCase golden = load_golden_case(name);
  const Checkpoint checkpoint(golden.folder);
  const ModelSources sources =
      checkpoint_sources(load_model_config(golden.folder), checkpoint, quantization);
  std::vector<QuantFormat> out;
  for (const MatrixSource* source : sources.layers.front().matrices()) {
    for (const StoredPart& part : source->parts) {
      EXPECT_EQ(part.codes != nullptr, source->quant.float4) << source->name;
      EXPECT_FALSE(part.codes != nullptr && part.numbers != nullptr) << source->name;
    }
    out.push_back(source->quant);
  }
  return out;
}

TEST(KeptFloat4, WhereTheDeviceKeepsItAndNothingElseIsAskedFor) {
  for (const auto& [name, kept] : {std::pair{"llama_mxfp4", 4}, {"gpt_oss_mxfp4", 2}}) {
    const auto count = [folder = name](const Quantization& quantization) {
      return std::ranges::count(formats_of(folder, quantization), kFloat4Format);
    };
    EXPECT_EQ(count({.float4_weights = true}), kept) << name;
    EXPECT_EQ(count({}), 0) << name;
    EXPECT_EQ(count({.bits = 8, .group_size = 32, .float4_weights = true}), 0) << name;
    // The plan of memory knows it, too.
    const ModelConfig config = load_model_config(load_golden_case(name).folder);
    const auto plan = [&](const Quantization& quantization) {
      return plan_weight_bytes(config, DType::kBF16, quantization, {});
    };
    EXPECT_LT(plan({.float4_weights = true}), plan({})) << name;
  }
}

// As of a model whose weights are made up: no file says what they are.
TEST(KeptFloat4, NotOfInputsThatGroupsDontDivide) {
  ModelConfig config = load_model_config(load_golden_case("llama_mxfp4").folder);
  config.intermediate_size = 100;
  const ModelSources sources =
      list_sources(config, likely_naming(config), {.float4_weights = true});
  for (const MatrixSource* source : sources.layers.front().matrices()) {
    EXPECT_EQ(source->quant.float4, source->k != 100) << source->name;
  }
}

TEST(KeptFloat4, CodesAreThoseOfTheFile) {
  const std::string scales = {'\x80', '\x00', '\x7e', '\xfc'};
  const Folder folder({kN, kK / 2}, {kN, kK / 32}, scales);
  const auto whole = std::make_shared<const ScaledFloat4>(folder.read());
  const Float4Codes codes(whole, 1, 1);
  EXPECT_EQ(codes.scales(), "a.weight_scale");
  for (int64_t group = 0; group < kK / 32; ++group) {
    QuantizedGroup got;
    codes.read(0, 1, group, &got);
    std::vector<float> want(32);
    whole->read(1, group * 32, 32, want.data());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(e2m1_to_f32(got.codes[i]) * e8m0_to_f32(static_cast<uint8_t>(got.scale)), want[i]);
    }
  }
}

class QuantizedFloat4 : public testing::TestWithParam<const char*> {};

// What is rounded is code times scale, and not the codes.
TEST_P(QuantizedFloat4, LikeAnyOtherNumbers) {
  const GoldenCase golden = load_golden_case(GetParam());
  const std::vector<int32_t>& prompt = golden.prompts[1].prompt;
  const auto logits = [&](const Quantization& quantization) {
    DecoderHarness harness("baseline", golden.folder, {.quantization = quantization});
    harness.start(0, static_cast<int32_t>(prompt.size()));
    return harness.step({.sequence = 0, .tokens = prompt},
                        {static_cast<int32_t>(prompt.size()) - 1})[0];
  };
  const std::vector<float> exact = logits({}), rounded = logits({8, 32});
  double error = 0.0, size = 0.0;
  for (size_t i = 0; i < exact.size(); ++i) {
    error += double{exact[i] - rounded[i]} * double{exact[i] - rounded[i]};
    size += double{exact[i]} * double{exact[i]};
  }
  EXPECT_GT(error, 0.0);
  EXPECT_LT(error, 0.05 * size);  // codes without their scales would be off by all of it
}

INSTANTIATE_TEST_SUITE_P(Cases, QuantizedFloat4, testing::Values("llama_mxfp4", "gpt_oss_mxfp4"));

}  // namespace
}  // namespace headrace
