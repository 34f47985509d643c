// Weights stored as FP8 with scales: what they say, and which files are refused.

#include "model/quantized/scaled_float8.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "cpp/model/checkpoint_files.h"
#include "cpp/model/decoder_harness.h"
#include "cpp/model/expect_error.h"
#include "cpp/model/golden_case.h"
#include "cpp/model/test_json.h"
#include "model/checkpoint/checkpoint.h"
#include "model/quantized/float8_codes.h"
#include "tensor/float8.h"

namespace headrace {
namespace {

constexpr int64_t kN = 5, kK = 7;

TEST(Float8, EveryCodeOfE4m3) {
  EXPECT_EQ(std::bit_cast<uint32_t>(e4m3_to_f32(0x00)), 0u);
  EXPECT_EQ(std::bit_cast<uint32_t>(e4m3_to_f32(0x80)), 0x80000000u);
  EXPECT_EQ(e4m3_to_f32(0x01), 0x1p-9f);
  EXPECT_EQ(e4m3_to_f32(0x07), 7 * 0x1p-9f);
  EXPECT_EQ(e4m3_to_f32(0x08), 0x1p-6f);
  EXPECT_EQ(e4m3_to_f32(0x38), 1.0f);
  EXPECT_EQ(e4m3_to_f32(0x3c), 1.5f);
  EXPECT_EQ(e4m3_to_f32(0x7e), 448.0f);
  for (int bits = 1; bits < 0x7f; ++bits) {
    EXPECT_GT(e4m3_to_f32(static_cast<uint8_t>(bits)), e4m3_to_f32(static_cast<uint8_t>(bits - 1)));
    EXPECT_EQ(e4m3_to_f32(static_cast<uint8_t>(bits | 0x80)),
              -e4m3_to_f32(static_cast<uint8_t>(bits)));
  }
  EXPECT_TRUE(std::isnan(e4m3_to_f32(0x7f)) && std::isnan(e4m3_to_f32(0xff)));
}

/// A folder with "a.weight" [kN, kK], whose codes count up from `first`, and scales.
class Folder {
 public:
  Folder(const std::string& suffix, std::vector<int64_t> shape, const std::vector<float>& scales,
         DType dtype = DType::kF32, uint8_t first = 0x30) {
    std::string codes;
    for (int64_t i = 0; i < kN * kK; ++i) codes.push_back(static_cast<char>(first + i));
    std::vector<TensorToWrite> tensors = {{"a.weight", DType::kF8E4M3, {kN, kK}, codes}};
    if (!suffix.empty()) tensors.push_back({"a." + suffix, dtype, shape, encode(scales, dtype)});
    folder_.write("model.safetensors", safetensors_file(tensors));
    checkpoint_ = std::make_unique<Checkpoint>(folder_.path());
  }

  ScaledFloat8 read(const StoredQuantization& stored, int64_t n = kN) const {
    return ScaledFloat8(stored, *checkpoint_, "a", n, kK);
  }

 private:
  TempFolder folder_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

/// All of it, read in two runs, against codes times scale(n, k).
template <class Scale>
void expect_numbers(const ScaledFloat8& weight, const Scale& scale) {
  for (int64_t n = 0; n < kN; ++n) {
    std::vector<float> row(kK);
    weight.read(n, 0, 3, row.data());
    weight.read(n, 3, kK - 3, row.data() + 3);
    for (int64_t k = 0; k < kK; ++k) {
      const float code = e4m3_to_f32(static_cast<uint8_t>(0x30 + n * kK + k));
      EXPECT_EQ(row[static_cast<size_t>(k)], code * scale(n, k)) << n << ", " << k;
    }
  }
}

const StoredQuantization kBlocks{.method = StoredMethod::kFp8, .block_n = 2, .block_k = 4};
const StoredQuantization kByShape{.method = StoredMethod::kFloat8};

// Every number as it is, the middle between two to the even one, and what is beyond the largest.
TEST(Float8, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7f; ++bits) {
    const float own = e4m3_to_f32(static_cast<uint8_t>(bits));
    EXPECT_EQ(f32_to_e4m3(own), bits);
    EXPECT_EQ(f32_to_e4m3(-own), bits | 0x80);
    if (bits == 0x7e) continue;
    const float middle = (own + e4m3_to_f32(static_cast<uint8_t>(bits + 1))) / 2;
    EXPECT_EQ(f32_to_e4m3(middle), bits + bits % 2);
    EXPECT_EQ(f32_to_e4m3(std::nextafter(middle, 0.0f)), bits);
    EXPECT_EQ(f32_to_e4m3(std::nextafter(middle, 1000.0f)), bits + 1);
  }
  EXPECT_EQ(f32_to_e4m3(464.0f), 0x7e);
  EXPECT_EQ(f32_to_e4m3(1e30f), 0x7e);
  EXPECT_EQ(f32_to_e4m3(-INFINITY), 0xfe);
  EXPECT_EQ(f32_to_e4m3(std::nanf("")), 0x7f);
}

TEST(ScaledFloat8, ScalesOfBlocksFeaturesAndTheTensor) {
  const std::vector<float> six = {0.5f, 0.3f, 7.0f, 11.0f, -2.0f, 0.0f};
  const Folder blocks("weight_scale_inv", {3, 2}, six);
  expect_numbers(blocks.read(kBlocks),
                 [&](int64_t n, int64_t k) { return six[size_t(n / 2 * 2 + k / 4)]; });
  EXPECT_EQ(blocks.read(kBlocks).tensors(),
            (std::vector<std::string>{"a.weight", "a.weight_scale_inv"}));
  const std::vector<float> five = {0.5f, 1.25f, 2.0f, 3.0f, 4.0f};
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{kN, 1}, {kN}}) {
    expect_numbers(Folder("weight_scale", shape, five, DType::kBF16).read(kByShape),
                   [&](int64_t n, int64_t) { return five[size_t(n)]; });
  }
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{1, 1}, {1}, {}}) {
    expect_numbers(Folder("weight_scale", shape, {0.3f}).read(kByShape),
                   [](int64_t, int64_t) { return 0.3f; });
  }
}

TEST(ScaledFloat8, WhatCannotBeIsRefusedByName) {
  const auto refused = [](ErrorCode code, const char* tensor, const Folder& folder,
                          const StoredQuantization& stored, int64_t n = kN) {
    expect_error(code, {tensor}, [&] { folder.read(stored, n); });
  };
  const std::vector<float> six = {1, 1, 1, 1, 1, 1}, five = {1, 1, 1, 1, 1};
  const ErrorCode corrupt = ErrorCode::kCorruptFile;
  refused(ErrorCode::kNotFound, "a.weight_scale", Folder("", {}, {}), kBlocks);
  refused(corrupt, "a.weight_scale_inv", Folder("weight_scale_inv", {2, 3}, six), kBlocks);
  refused(corrupt, "a.weight_scale", Folder("weight_scale", {5}, five), kBlocks);
  refused(corrupt, "a.weight_scale", Folder("weight_scale", {6}, six), kByShape);
  refused(corrupt, "a.weight_scale", Folder("weight_scale", {1, 5}, five), kByShape);
  refused(corrupt, "a.weight", Folder("weight_scale", {5}, five), kByShape, kN - 1);
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    refused(corrupt, "a.weight_scale", Folder("weight_scale", {5}, {1, 1, bad, 1, 1}), kByShape);
  }
  refused(ErrorCode::kUnsupported, "a.weight_scale", Folder("weight_scale", {5}, five, DType::kF64),
          kByShape);
}

/// A copy of a golden checkpoint with one byte of a tensor changed.
void copy_with_byte(const TempFolder& folder, const std::string& tensor, char byte) {
  const std::filesystem::path from = std::filesystem::path(HEADRACE_GOLDEN_DIR) / "llama_fp8";
  std::filesystem::copy(from / "config.json", folder.path());
  std::ifstream in(from / "model.safetensors", std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  const Json entries = Json::parse(bytes.substr(8, header));
  bytes[8 + header + entries[tensor]["data_offsets"][0].get<size_t>() + 3] = byte;
  folder.write("model.safetensors", bytes);
}

TEST(ScaledFloat8, ACodeThatIsNaNIsRefusedByItsTensorsName) {
  const std::string tensor = "model.layers.1.mlp.down_proj.weight";
  for (const char byte : {'\x7f', '\xff'}) {
    const TempFolder folder;
    copy_with_byte(folder, tensor, byte);
    for (const Quantization& quantization : {Quantization{}, Quantization{4, 32}}) {
      expect_error(ErrorCode::kCorruptFile, {tensor.c_str(), "nan", "its number 3"}, [&] {
        DecoderHarness("baseline", folder.path(), {.quantization = quantization});
      });
    }
  }
}

// Whoever multiplies codes never sees one.
TEST(ScaledFloat8, NorAreCodesReadThatAreNaN) {
  const QuantFormat format{.bits = 8, .group_size = 128, .activations = Activations::kFloat8Rows};
  const auto read = [&](uint8_t first_code, int64_t feature) {
    const Folder folder("weight_scale", {1}, {0.5f}, DType::kF32, first_code);
    const Float8Codes codes(std::make_unique<ScaledFloat8>(folder.read(kByShape)), format, kK, 0);
    QuantizedGroup group;
    codes.read(feature, 1, 0, &group);
    return group.codes[3];
  };
  EXPECT_EQ(read(0x30, 1), 0x30 + kK + 3);
  EXPECT_EQ(read(0x7f - kK - 3, 0), 0x7f - kK);
  for (const int code : {0x7f, 0xff}) {
    expect_error(ErrorCode::kCorruptFile, {"a.weight", "feature 1, input 3"},
                 [&] { read(static_cast<uint8_t>(code - kK - 3), 1); });
  }
}

// What is rounded is code times scale, and not the codes.
TEST(ScaledFloat8, MayBeQuantizedLikeAnyOtherNumbers) {
  const GoldenCase golden = load_golden_case("llama_fp8");
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
  EXPECT_LT(error, 0.01 * size);
}

}  // namespace
}  // namespace headrace
