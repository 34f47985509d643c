// What checkpoints that come quantized say of themselves, and their codes in every order.

#include "model/quantized/stored_codes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "cpp/model/expect_error.h"
#include "cpp/model/test_json.h"
#include "model/config/stored_quantization.h"

namespace headrace {
namespace {

StoredQuantization read(const Json& json) { return read_stored_quantization(json_value(json)); }

Json compressed(const char* format, const Json& weights) {
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
}

const Json kMxfp4Weights = {{"num_bits", 4},       {"type", "float"},
                            {"strategy", "group"}, {"group_size", 32},
                            {"symmetric", true},   {"scale_dtype", "torch.uint8"}};

TEST(StoredQuantization, WhatIsLoaded) {
  const auto gptq = StoredMethod::kGptq;
  EXPECT_EQ(read({{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}}),
            (StoredQuantization{gptq, 4, 128, true}));
  EXPECT_EQ(read({{"quant_method", "gptq"},
                  {"bits", 8},
                  {"group_size", -1},
                  {"desc_act", true},
                  {"checkpoint_format", "gptq_v2"}}),
            (StoredQuantization{gptq, 8, 0, false}));
  EXPECT_EQ(read({{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 64}, {"desc_act", true}}),
            (StoredQuantization{gptq, 4, 64, true, true}));
  for (const auto& [order, own] : {std::pair<Json, bool>{"group", true},
                                   {true, true},
                                   {"weight", false},
                                   {"static", false},
                                   {nullptr, false}}) {
    EXPECT_EQ(read(compressed("pack-quantized",
                              {{"num_bits", 4}, {"group_size", 32}, {"actorder", order}})),
              (StoredQuantization{
                  .method = StoredMethod::kPacked, .bits = 4, .group_size = 32, .own_order = own}));
  }
  EXPECT_EQ(read({{"quant_method", "awq"}, {"w_bit", 4}, {"q_group_size", 64}}),
            (StoredQuantization{StoredMethod::kAwq, 4, 64}));
  EXPECT_EQ(read(compressed("pack-quantized",
                            {{"num_bits", 4}, {"strategy", "group"}, {"group_size", 32}})),
            (StoredQuantization{StoredMethod::kPacked, 4, 32}));
  EXPECT_EQ(read(compressed("int-quantized", {{"num_bits", 8}, {"strategy", "channel"}})),
            (StoredQuantization{StoredMethod::kInt8, 8, 0}));
  EXPECT_EQ(read(compressed("float-quantized",
                            {{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}})),
            (StoredQuantization{.method = StoredMethod::kFloat8}));
  EXPECT_EQ(read(compressed("float-quantized", {{"num_bits", 8},
                                                {"type", "float"},
                                                {"strategy", "block"},
                                                {"block_structure", {128, 64}}})),
            (StoredQuantization{.method = StoredMethod::kFloat8, .block_n = 128, .block_k = 64}));
  EXPECT_EQ(read(compressed("mxfp4-pack-quantized", kMxfp4Weights)),
            (StoredQuantization{.method = StoredMethod::kMxfp4}));
  EXPECT_EQ(read({{"quant_method", "mxfp4"}, {"modules_to_not_convert", {"lm_head"}}}),
            (StoredQuantization{.method = StoredMethod::kMxfp4Blocks}));
  EXPECT_EQ(
      read({{"quant_method", "fp8"},
            {"activation_scheme", "dynamic"},
            {"fmt", "e4m3"},
            {"weight_block_size", {128, 128}},
            {"modules_to_not_convert", {"lm_head"}}}),
      (StoredQuantization{
          .method = StoredMethod::kFp8, .block_n = 128, .block_k = 128, .rounded_rows = true}));
  EXPECT_EQ(read({{"quant_method", "fp8"}}),
            (StoredQuantization{.method = StoredMethod::kFp8, .rounded_rows = true}));
  Json rounded = compressed("int-quantized", {{"num_bits", 8}, {"strategy", "channel"}});
  rounded["config_groups"]["group_0"]["input_activations"] = {
      {"num_bits", 8}, {"type", "int"}, {"strategy", "token"}, {"dynamic", true}};
  EXPECT_EQ(read(rounded),
            (StoredQuantization{.method = StoredMethod::kInt8, .bits = 8, .rounded_rows = true}));
}

TEST(StoredQuantization, WhatIsRefused) {
  const auto refused = [](const char* key, const Json& json) {
    expect_error(ErrorCode::kUnsupported, {"quantization_config", key}, [&] { read(json); });
  };
  const Json gptq = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}};
  const auto changed = [&](const char* key, const Json& value) {
    Json json = gptq;
    json[key] = value;
    refused(key, json);
  };
  changed("quant_method", "fp6");
  changed("bits", 3);
  changed("group_size", 16);
  changed("group_size", 0);
  changed("checkpoint_format", "marlin");
  changed("format", "bitblas");
  changed("is_marlin_format", true);
  changed("pack_dtype", "int64");
  changed("dynamic", {{"+:lm_head", {{"bits", 8}}}});
  changed("a_new_key", "x");
  refused("version", {{"quant_method", "awq"}, {"bits", 4}, {"version", "gemv"}});
  refused("zero_point", {{"quant_method", "awq"}, {"bits", 4}, {"zero_point", false}});
  refused("num_bits", compressed("int-quantized", {{"num_bits", 4}, {"strategy", "channel"}}));
  refused("strategy", compressed("pack-quantized", {{"num_bits", 4}, {"strategy", "tensor"}}));
  refused("format", compressed("nvfp4-pack-quantized", {{"num_bits", 4}}));
  refused("strategy", compressed("float-quantized", {{"num_bits", 8}, {"strategy", "group"}}));
  refused("type", compressed("float-quantized", {{"type", "int"}, {"strategy", "channel"}}));
  refused("num_bits", compressed("float-quantized", {{"num_bits", 4}, {"strategy", "channel"}}));
  refused("fmt", {{"quant_method", "fp8"}, {"fmt", "e5m2"}});
  refused("block_size", {{"quant_method", "mxfp4"}, {"block_size", 16}});
  refused("activation_scheme", {{"quant_method", "fp8"}, {"activation_scheme", "static"}});
  refused("kv_cache_scheme", {{"quant_method", "fp8"}, {"kv_cache_scheme", {{"num_bits", 8}}}});
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, Json>>{
           {"num_bits", 8},
           {"type", "int"},
           {"strategy", "tensor_group"},
           {"group_size", 16},
           {"symmetric", false},
           {"dynamic", true},
           {"actorder", "group"},
           {"scale_dtype", "torch.float8_e4m3fn"}}) {
    Json weights = kMxfp4Weights;
    weights[key] = value;
    refused(key, compressed("mxfp4-pack-quantized", weights));
  }
  Json activations = compressed("mxfp4-pack-quantized", kMxfp4Weights);
  Json& inputs = activations["config_groups"]["group_0"]["input_activations"];
  for (const int bits : {4, 8}) {
    inputs = {{"num_bits", bits}, {"type", "float"}, {"dynamic", true}};
    EXPECT_NO_THROW(read(activations));
  }
  inputs["dynamic"] = "local";
  refused("input_activations", activations);
  Json scheme = compressed("pack-quantized", {{"num_bits", 4}, {"strategy", "channel"}});
  scheme["config_groups"]["group_1"] = scheme["config_groups"]["group_0"];
  EXPECT_NO_THROW(read(scheme));
  scheme["config_groups"]["group_1"]["weights"]["num_bits"] = 8;
  refused("config_groups", scheme);
  scheme = compressed("pack-quantized", {{"num_bits", 4}, {"strategy", "channel"}});
  scheme["config_groups"]["group_0"]["input_activations"] = {{"num_bits", 8}, {"dynamic", false}};
  refused("input_activations", scheme);
  expect_error(ErrorCode::kCorruptFile, {"config_groups"}, [] {
    read({{"quant_method", "compressed-tensors"}, {"format", "pack-quantized"}});
  });
}

// As GPTQModel (6 and later) and auto-round write them: what says nothing of the numbers.
TEST(StoredQuantizationConfig, KeysOfTodaysToolsAreAccepted) {
  const Json common = {{"bits", 4},
                       {"group_size", 128},
                       {"desc_act", false},
                       {"sym", true},
                       {"lm_head", false},
                       {"pack_dtype", "int32"},
                       {"dynamic", {{"-:.*\\.mlp\\.gate$", Json::object()}}},
                       {"act_group_aware", true},
                       {"damp_percent", 0.05},
                       {"true_sequential", true},
                       {"meta", {{"quantizer", {"gptqmodel:6.0.0"}}, {"act_group_aware", true}}}};
  const Json auto_round = {{"autoround_version", "0.9.2"},
                           {"provider", "auto-round"},
                           {"data_type", "int"},
                           {"iters", 200},
                           {"low_gpu_mem_usage", true},
                           {"act_bits", 16},
                           {"to_quant_block_names", "model.layers"}};
  for (const auto& [method, format] : {std::pair{"gptq", "gptq"}, std::pair{"awq", "gemm"}}) {
    SCOPED_TRACE(method);
    Json plain = {{"quant_method", method}, {"bits", 4}, {"group_size", 128}};
    if (plain["quant_method"] == "awq") plain["version"] = "gemm";
    Json json = plain;
    json.update(common);
    json.update({{"method", method}, {"format", format}, {"checkpoint_format", format}});
    EXPECT_EQ(read(json), read(plain));
    json = plain;
    json.update(auto_round);
    EXPECT_EQ(read(json), read(plain));
  }
  // auto-round's AWQ stores the zero points of symmetric weights.
  EXPECT_EQ(read({{"quant_method", "awq"}, {"bits", 4}, {"sym", true}, {"zero_point", false}}),
            read({{"quant_method", "awq"}, {"bits", 4}}));
  EXPECT_EQ(read({{"quant_method", "fp8"}, {"expert_dtype", "fp8"}}),
            read({{"quant_method", "fp8"}}));
  Json scheme = compressed("pack-quantized", {{"num_bits", 4}, {"strategy", "channel"}});
  scheme.update({{"provider", "auto-round"}, {"autoround_version", "0.9.2"}});
  EXPECT_NO_THROW(read(scheme));
}

TEST(StoredQuantizationConfig, WhatChangesNumbersIsStillRefused) {
  const auto refused = [](const char* method, const char* key, const Json& value) {
    Json json = {{"quant_method", method}, {"bits", 4}, {"group_size", 128}};
    if (json["quant_method"] == "fp8") json = {{"quant_method", method}};
    json[key] = value;
    expect_error(ErrorCode::kUnsupported, {"quantization_config", key}, [&] { read(json); });
  };
  for (const char* method : {"gptq", "awq"}) {
    SCOPED_TRACE(method);
    refused(method, "method", "qqq");
    refused(method, "format", "marlin");
    refused(method, "checkpoint_format", "marlin");
    refused(method, "pack_dtype", "int16");
    refused(method, "data_type", "mx_fp");
    refused(method, "act_bits", 8);
    refused(method, "dynamic", {{"+:.*\\.mlp\\.down_proj$", {{"bits", 8}}}});
  }
  for (const char* format : {"gemv", "gemv_fast", "llm-awq"}) {
    refused("awq", "checkpoint_format", format);
  }
  refused("awq", "desc_act", true);
  refused("awq", "zero_point", false);
  refused("fp8", "expert_dtype", "fp4");
}

/// Codes [n][k] and where they are put.
struct Case {
  const char* name;
  int32_t bits;
  bool by_feature, awq_order, is_signed, shuffled;
};

constexpr Case kCases[] = {
    {"InputsInWords4", 4, false, false, false, false},
    {"InputsInWords8", 8, false, false, false, false},
    {"InputsInWordsByOrder", 4, false, false, false, true},
    {"FeaturesInWords", 4, true, false, false, false},
    {"FeaturesInWordsOfAwq", 4, true, true, false, false},
    {"Bytes", 8, false, false, true, false},
    {"BytesByOrder", 8, false, false, true, true},
};

class CodesTest : public testing::TestWithParam<Case> {};

void put(std::vector<std::byte>& data, int64_t byte, uint32_t shift, uint32_t code) {
  uint32_t word;
  std::memcpy(&word, &data[static_cast<size_t>(byte)], 4);
  word |= code << shift;
  std::memcpy(&data[static_cast<size_t>(byte)], &word, 4);
}

// The buffers are exactly as large as the tensors, so that a read beyond them is one of the heap.
TEST_P(CodesTest, AreReadFromWhereTheyAre) {
  const Case& c = GetParam();
  constexpr int64_t kFeatures = 40, kInputs = 205, kSize = 64;
  std::mt19937_64 random(51);
  const int64_t per_word = 32 / c.bits;
  constexpr int kAwqOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};
  StoredLayer layer{.n = kFeatures, .k = kInputs, .bits = c.bits, .group_size = 2 * kSize};
  std::vector<std::vector<uint8_t>> codes(kFeatures, std::vector<uint8_t>(kInputs));
  for (auto& row : codes) {
    for (uint8_t& code : row) code = static_cast<uint8_t>(random() % (1u << c.bits));
  }
  const int64_t lines = c.by_feature ? kInputs : kFeatures;
  const int64_t along = c.by_feature ? kFeatures : kInputs;
  const int64_t line_bytes = c.is_signed ? along : (along + per_word - 1) / per_word * 4;
  std::vector<std::byte> data(static_cast<size_t>(lines * line_bytes));
  for (int64_t line = 0; line < lines; ++line) {
    for (int64_t i = 0; i < along; ++i) {
      const uint8_t code =
          c.by_feature ? codes[size_t(i)][size_t(line)] : codes[size_t(line)][size_t(i)];
      if (c.is_signed) {
        data[size_t(line * line_bytes + i)] = static_cast<std::byte>(code - 128);
        continue;
      }
      int64_t place = i % per_word;
      if (c.awq_order) place = std::find(kAwqOrder, kAwqOrder + 8, place) - kAwqOrder;
      put(data, line * line_bytes + i / per_word * 4, static_cast<uint32_t>(place * c.bits), code);
    }
  }
  layer.codes = {.data = data.data(),
                 .word_stride = 4,
                 .line_stride = line_bytes,
                 .line_bytes = c.is_signed ? line_bytes : 0,
                 .by_feature = c.by_feature,
                 .awq_order = c.awq_order,
                 .is_signed = c.is_signed};
  const std::vector<uint16_t> scales(kFeatures * 2, f32_to_f16(0.5f));
  layer.scales = {.data = reinterpret_cast<const std::byte*>(scales.data()),
                  .feature_stride = 4,
                  .group_stride = 2};
  if (c.shuffled) {
    for (int32_t i = 0; i < kInputs; ++i) layer.order.push_back((i * 7 + 3) % int32_t{kInputs});
  }
  const auto order = layer.order;
  const QuantFormat format{
      .bits = c.bits, .group_size = kSize, .f16_scales = true, .reordered = c.shuffled};
  const StoredCodes stored(std::move(layer), format);
  for (int64_t group = 0; group * kSize < kInputs; ++group) {
    std::vector<QuantizedGroup> read(kFeatures - 3);
    stored.read(3, kFeatures - 3, group, read.data());
    for (int64_t n = 3; n < kFeatures; ++n) {
      const QuantizedGroup& got = read[size_t(n - 3)];
      EXPECT_EQ(got.scale, f32_to_f16(0.5f));
      EXPECT_EQ(got.zero, quant_zero(c.bits));
      for (int64_t j = 0; j < kSize; ++j) {
        const int64_t at = group * kSize + j;
        const int64_t input = at >= kInputs || order.empty() ? at : order[size_t(at)];
        const int want = at >= kInputs ? quant_zero(c.bits) : codes[size_t(n)][size_t(input)];
        ASSERT_EQ(got.codes[j], want) << n << ", " << at;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, CodesTest, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace headrace
