// The names of quantizations, and what a decoder makes of them.

#include "model/config/quantization.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "cpp/model/expect_error.h"
#include "headrace/status.h"
#include "model/decoder/decoder.h"
#include "model/load/list_sources.h"
#include "model/load/load_config.h"
#include "model/load/make_decoder.h"
#include "model/sources/model_sources.h"

namespace headrace {
namespace {

TEST(Quantization, Names) {
  EXPECT_EQ(parse_quantization("", 0), Quantization{});
  EXPECT_EQ(parse_quantization("none", 0), Quantization{});
  EXPECT_EQ(parse_quantization("wint8", 0), (Quantization{8, 64}));
  EXPECT_EQ(parse_quantization("wint4", 0), (Quantization{4, 32}));
  EXPECT_EQ(parse_quantization("wint4", 128), (Quantization{4, 128}));
  for (const char* name : {"", "wint8", "wint4", "fp8", "block_wise_fp8"}) {
    EXPECT_EQ(quantization_name(parse_quantization(name, 0)), name);
  }
  EXPECT_THROW(parse_quantization("wint2", 0), Error);
  EXPECT_THROW(parse_quantization("wint8", 48), Error);
  EXPECT_THROW(parse_quantization("wint8", -32), Error);
  EXPECT_THROW(parse_quantization("", 32), Error);
  EXPECT_EQ(parse_quantization("block_wise_fp8", 128), parse_quantization("block_wise_fp8", 0));
  EXPECT_THROW(parse_quantization("block_wise_fp8", 64), Error);
  EXPECT_THROW(parse_quantization("fp8", 128), Error);
}

TEST(Quantization, TheCpuRefusesFloat8ByName) {
  const auto cpu = make_cpu_backend({.num_threads = 1});
  for (const char* name : {"fp8", "block_wise_fp8"}) {
    expect_error(ErrorCode::kUnsupported, {name, "wint8", "device cuda"},
                 [&] { cpu->require({.head_dim = 64, .quantization = name}); });
    const QuantFormat format = layer_format(parse_quantization(name, 0));
    EXPECT_TRUE(has_float8(format));
    expect_error(ErrorCode::kUnsupported, {"FP8", "wint8", "device cuda"},
                 [&] { cpu->packed_bytes({64, 64, DType::kF32, WeightUse::kLinear, format}); });
  }
}

TEST(Quantization, Float8LeavesHeadsAlone) {
  ModelConfig config = load_model_config(HEADRACE_TINY_MODEL);
  const Quantization fp8 = parse_quantization("fp8", 0);
  ModelSources sources = list_sources(config, likely_naming(config), fp8);
  EXPECT_EQ(sources.embedding.quant, QuantFormat{});
  for (const LayerSources& layer : sources.layers) {
    for (const MatrixSource* matrix : layer.matrices()) {
      EXPECT_EQ(matrix->quant.activations, Activations::kFloat8Rows);
    }
  }
}

TEST(Quantization, MatricesGetTheirFormats) {
  ModelConfig config = load_model_config(HEADRACE_TINY_MODEL);
  ASSERT_TRUE(config.tie_word_embeddings);
  const Quantization wint4{4, 32};
  const QuantFormat int4{.bits = 4, .group_size = 32}, int8{.bits = 8, .group_size = 64};
  ModelSources sources = list_sources(config, likely_naming(config), wint4);
  EXPECT_EQ(sources.embedding.quant, int8);
  for (const LayerSources& layer : sources.layers) {
    for (const MatrixSource* matrix : layer.matrices()) EXPECT_EQ(matrix->quant, int4);
  }
  config.tie_word_embeddings = false;
  sources = list_sources(config, likely_naming(config), wint4);
  EXPECT_EQ(sources.embedding.quant, QuantFormat{});
  EXPECT_EQ(sources.head.quant, int8);
}

TEST(Quantization, PlansAreWhatIsTaken) {
  const auto backend = make_cpu_backend({.num_threads = 1});
  const ModelConfig config = load_model_config(HEADRACE_TINY_MODEL);
  for (const Quantization& quantization : {Quantization{8, 128}, Quantization{4, 64}}) {
    const DecoderOptions options{
        .storage = DType::kBF16, .quantization = quantization, .dummy_weights = true};
    const auto decoder = make_decoder(*backend, config, nullptr, options);
    const size_t plan = plan_weight_bytes(config, DType::kBF16, quantization);
    EXPECT_GE(decoder->weight_bytes(), plan);
    EXPECT_LE(decoder->weight_bytes(), plan + plan / 50 + 100'000);
  }
}

}  // namespace
}  // namespace headrace
