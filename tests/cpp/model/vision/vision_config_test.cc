#include <gtest/gtest.h>

#include <string>

#include "cpp/model/expect_error.h"
#include "cpp/model/golden_case.h"
#include "cpp/model/test_json.h"
#include "cpp/model/vision/vision_golden.h"
#include "model/checkpoint/checkpoint.h"
#include "model/config/model_config.h"
#include "model/decoder/decoder.h"
#include "model/load/list_sources.h"
#include "model/load/load_config.h"
#include "model/load/make_decoder.h"
#include "model/sources/model_sources.h"

namespace headrace {
namespace {

Json config_of(const std::string& name) {
  return Json::parse(read_golden_text(load_vision_golden(name).folder / "config.json"));
}

ModelConfig parse(const Json& json) { return parse_model_config(json.dump(), ""); }

void expect_refusal(const Json& json, ErrorCode code, std::initializer_list<std::string> parts) {
  expect_error(code, parts, [&json] { parse(json); });
}

/// As published (Qwen2.5-VL-3B-Instruct).
Json published_qwen2_5_vl() {
  return Json::parse(R"({"architectures":["Qwen2_5_VLForConditionalGeneration"],
    "attention_dropout":0.0,"bos_token_id":151643,"eos_token_id":151645,
    "vision_start_token_id":151652,"vision_end_token_id":151653,"vision_token_id":151654,
    "image_token_id":151655,"video_token_id":151656,"hidden_act":"silu","hidden_size":2048,
    "initializer_range":0.02,"intermediate_size":11008,"max_position_embeddings":128000,
    "max_window_layers":70,"model_type":"qwen2_5_vl","num_attention_heads":16,
    "num_hidden_layers":36,"num_key_value_heads":2,"rms_norm_eps":1e-06,"rope_theta":1000000.0,
    "sliding_window":32768,"tie_word_embeddings":true,"torch_dtype":"bfloat16",
    "transformers_version":"4.41.2","use_cache":true,"use_sliding_window":false,
    "vision_config":{"depth":32,"hidden_act":"silu","hidden_size":1280,"intermediate_size":3420,
      "num_heads":16,"in_chans":3,"out_hidden_size":2048,"patch_size":14,"spatial_merge_size":2,
      "spatial_patch_size":14,"window_size":112,"fullatt_block_indexes":[7,15,23,31],
      "tokens_per_second":2,"temporal_patch_size":2},
    "rope_scaling":{"type":"mrope","mrope_section":[16,24,24]},"vocab_size":151936})");
}

TEST(VisionConfig, PublishedQwen2_5Vl) {
  const ModelConfig config = parse(published_qwen2_5_vl());
  ASSERT_TRUE(config.vision);
  EXPECT_TRUE(config.qkv_bias && config.tie_word_embeddings);
  EXPECT_EQ(config.vision->depth, 32);
  EXPECT_EQ(config.vision->width, 1280);
  EXPECT_EQ(config.vision->head_dim, 80);
  EXPECT_EQ(config.vision->window, 4);
  EXPECT_EQ(config.vision->full_blocks, (std::vector<int32_t>{7, 15, 23, 31}));
  ASSERT_EQ(config.ropes[0].axes.size(), 64u);
  EXPECT_EQ(config.ropes[0].axes[15], 0);
  EXPECT_EQ(config.ropes[0].axes[16], 1);
  EXPECT_EQ(config.ropes[0].axes[39], 1);
  EXPECT_EQ(config.ropes[0].axes[40], 2);
  // The tower's weights are in the plan: 0.669e9 numbers of two bytes each.
  ModelConfig text = config;
  text.vision.reset();
  const size_t tower =
      plan_weight_bytes(config, DType::kBF16) - plan_weight_bytes(text, DType::kBF16);
  EXPECT_NEAR(static_cast<double>(tower), 2 * 0.669e9, 2e7);
}

/// As published (SmolVLM2-500M-Video-Instruct), with what class defaults leave out.
Json published_smolvlm() {
  return Json::parse(R"({"architectures":["SmolVLMForConditionalGeneration"],
    "image_token_id":49190,"model_type":"smolvlm","pad_token_id":128002,"scale_factor":4,
    "text_config":{"_flash_attn_2_enabled":true,"architectures":["VLlama3ForCausalLM"],
      "head_dim":64,"hidden_size":960,"intermediate_size":2560,"is_llama_config":true,
      "max_position_embeddings":8192,"model_type":"llama","neftune_noise_alpha":0.0,
      "num_attention_heads":15,"num_hidden_layers":32,"num_key_value_heads":5,"pad_token_id":2,
      "perceiver_config":{"model_type":"vllama3"},"pixel_shuffle_factor":4,
      "qk_layer_norms":false,"rms_norm_eps":1e-05,"rope_interleaved":false,"rope_theta":100000,
      "torch_dtype":"bfloat16","use_resampler":false,"vocab_size":49280},
    "tie_word_embeddings":false,"torch_dtype":"bfloat16","use_cache":false,
    "use_reentrant_checkpointing":false,
    "vision_config":{"hidden_size":768,"image_size":512,"max_image_size":{"longest_edge":512},
      "model_type":"smolvlm_vision","num_attention_heads":12,"patch_size":16,
      "size":{"longest_edge":2048},"tie_word_embeddings":false,"use_base_siglip":true},
    "vocab_size":49280})");
}

TEST(VisionConfig, PublishedSmolVlm) {
  const ModelConfig config = parse(published_smolvlm());
  ASSERT_TRUE(config.vision);
  EXPECT_EQ(config.num_heads, 15);
  EXPECT_TRUE(config.ropes[0].axes.empty());
  EXPECT_EQ(config.vision->depth, 12);
  EXPECT_EQ(config.vision->head_dim, 64);
  EXPECT_EQ(config.vision->mlp_width, 3072);
  EXPECT_EQ(config.vision->position_side, 32);
  EXPECT_EQ(config.vision->merge_size, 4);
  EXPECT_TRUE(config.vision->patches_by_row);
  Json json = published_smolvlm();
  json["scale_factor"] = 3;
  expect_refusal(json, ErrorCode::kCorruptFile, {"image_size", "scale_factor (3)"});
  json = published_smolvlm();
  json["vocab_size"] = 49152;
  expect_refusal(json, ErrorCode::kCorruptFile, {"text_config", "vocab_size", "49152"});
  json = published_smolvlm();
  json["text_config"]["use_resampler"] = true;
  expect_refusal(json, ErrorCode::kUnsupported, {"use_resampler"});
  for (const char* key : {"image_size", "patch_size", "num_hidden_layers", "num_attention_heads"}) {
    json = published_smolvlm();
    json["vision_config"][key] = -1;
    expect_refusal(json, ErrorCode::kCorruptFile, {"vision_config", key});
    json["vision_config"][key] = 1e15;
    expect_refusal(json, ErrorCode::kCorruptFile, {"vision_config", key});
  }
}

/// As published (4B), with what class defaults leave out.
Json published_gemma3() {
  return Json::parse(R"({"architectures":["Gemma3ForConditionalGeneration"],
    "boi_token_index":255999,"eoi_token_index":256000,"eos_token_id":[1,106],
    "image_token_index":262144,"initializer_range":0.02,"mm_tokens_per_image":256,
    "model_type":"gemma3",
    "text_config":{"hidden_size":2560,"intermediate_size":10240,"model_type":"gemma3_text",
      "num_hidden_layers":34,"rope_scaling":{"factor":8.0,"rope_type":"linear"},
      "sliding_window":1024},
    "torch_dtype":"bfloat16","transformers_version":"4.50.0.dev0",
    "vision_config":{"hidden_size":1152,"image_size":896,"intermediate_size":4304,
      "model_type":"siglip_vision_model","num_attention_heads":16,"num_hidden_layers":27,
      "patch_size":14,"vision_use_head":false}})");
}

TEST(VisionConfig, PublishedGemma3) {
  const ModelConfig config = parse(published_gemma3());
  ASSERT_TRUE(config.vision);
  EXPECT_EQ(config.model_type, "gemma3");
  EXPECT_EQ(config.num_heads, 8);
  EXPECT_EQ(config.head_dim, 256);
  EXPECT_EQ(config.layer_window[4], 1024);
  EXPECT_EQ(config.layer_window[5], 0);
  EXPECT_EQ(config.eos_token_ids, (std::vector<int32_t>{1, 106}));
  ASSERT_EQ(config.ropes.size(), 2u);
  EXPECT_TRUE(config.ropes[0].axes.empty());
  EXPECT_TRUE(config.vision->both_ways);
  EXPECT_EQ(config.vision->position_side, 64);
  EXPECT_EQ(config.vision->merge_size, 4);
  EXPECT_FALSE(config.vision->patches_by_row);
  EXPECT_EQ(config.vision->head_dim, 72);
  EXPECT_FLOAT_EQ(config.vision->out_norm_eps, 1e-6f);
  Json json = published_gemma3();
  for (const int rows : {255, 1024 * 1024, 9, 1}) {
    json["mm_tokens_per_image"] = rows;
    expect_refusal(json, ErrorCode::kCorruptFile, {"mm_tokens_per_image", "64 x 64"});
  }
  json = published_gemma3();
  json["text_config"]["use_bidirectional_attention"] = true;
  expect_refusal(json, ErrorCode::kUnsupported, {"use_bidirectional_attention"});
  json = published_gemma3();
  json["vision_config"]["image_size"] = 13;
  expect_refusal(json, ErrorCode::kCorruptFile, {"image_size", "patch_size (14)"});
  json = published_gemma3();
  json["vision_config"].erase("image_size");
  json["vision_config"].erase("patch_size");
  json["mm_tokens_per_image"] = 49;
  EXPECT_EQ(parse(json).vision->merge_size, 2) << "224 / 16";
}

TEST(VisionConfig, Qwen3VlTurnsInTurn) {
  Json json = config_of("qwen3_vl");
  json["text_config"]["head_dim"] = 128;
  json["text_config"]["rope_scaling"]["mrope_section"] = {24, 20, 20};
  const ModelConfig config = parse(json);
  ASSERT_EQ(config.ropes[0].axes.size(), 64u);
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(config.ropes[0].axes[i], i < 60 ? i % 3 : 0) << i;
  EXPECT_EQ(config.vision->position_side, 4);
  EXPECT_EQ(config.vision->deepstack_blocks, (std::vector<int32_t>{2, 0}));
  // The outer key alone counts.
  json["text_config"]["tie_word_embeddings"] = true;
  EXPECT_FALSE(parse(json).tie_word_embeddings);
  json["tie_word_embeddings"] = true;
  EXPECT_TRUE(parse(json).tie_word_embeddings);
}

TEST(VisionConfig, RefusesWhatQwen3VlCantMean) {
  const auto with = [](const char* key, const Json& value) {
    Json json = config_of("qwen3_vl");
    json["vision_config"][key] = value;
    return json;
  };
  expect_refusal(with("num_position_embeddings", 17), ErrorCode::kCorruptFile, {"a square"});
  expect_refusal(with("num_position_embeddings", 1e12), ErrorCode::kCorruptFile,
                 {"num_position_embeddings"});
  expect_refusal(with("deepstack_visual_indexes", {0, 1, 2}), ErrorCode::kCorruptFile,
                 {"fewer blocks", "(3)"});
  expect_refusal(with("deepstack_visual_indexes", {0, 0}), ErrorCode::kCorruptFile, {"different"});
  EXPECT_TRUE(
      parse(with("deepstack_visual_indexes", Json::array())).vision->deepstack_blocks.empty());
  Json json = config_of("qwen3_vl");
  json["text_config"]["rope_scaling"]["mrope_section"] = {0, 4, 4};
  expect_refusal(json, ErrorCode::kCorruptFile, {"mrope_section", "take turns"});
  json["text_config"]["rope_scaling"] = {{"mrope_section", {4, 2, 2}},
                                         {"mrope_interleaved", false}};
  expect_refusal(json, ErrorCode::kUnsupported, {"mrope_interleaved"});
  json = config_of("qwen3_vl_moe");
  json["text_config"]["norm_topk_prob"] = false;
  expect_refusal(json, ErrorCode::kUnsupported, {"norm_topk_prob"});
}

TEST(VisionConfig, TieInTextConfigCountsForQwen2) {
  Json json = config_of("qwen2_vl");
  EXPECT_TRUE(parse(json).tie_word_embeddings);
  json["text_config"]["tie_word_embeddings"] = false;
  EXPECT_FALSE(parse(json).tie_word_embeddings);
  json["tie_word_embeddings"] = true;
  EXPECT_TRUE(parse(json).tie_word_embeddings);
}

TEST(VisionConfig, TextConfigMustAgreeWithWhatStandsAroundIt) {
  Json json = config_of("qwen2_vl");
  json["hidden_size"] = 64;
  EXPECT_EQ(parse(json).hidden_size, 64);
  json["hidden_size"] = 128;
  expect_refusal(json, ErrorCode::kCorruptFile, {"text_config", "\"hidden_size\" is 64", "128"});
  json = config_of("qwen2_vl");
  json["text_config"]["model_type"] = "llama";
  expect_refusal(json, ErrorCode::kUnsupported, {"text_config", "model_type", "qwen2_vl_text"});
  json["text_config"] = 3;
  expect_refusal(json, ErrorCode::kCorruptFile, {"text_config", "must be an object"});
}

TEST(VisionConfig, RefusesHostileNumbersByName) {
  const auto with = [](const char* key, const Json& value) {
    Json json = config_of("qwen2_5_vl");
    json["vision_config"][key] = value;
    return json;
  };
  for (const char* key :
       {"depth", "hidden_size", "num_heads", "intermediate_size", "patch_size",
        "temporal_patch_size", "spatial_merge_size", "window_size", "out_hidden_size"}) {
    for (const Json& value : {Json(0), Json(-1), Json(1e18), Json("x"), Json(nullptr), Json(1.5)}) {
      expect_refusal(with(key, value), ErrorCode::kCorruptFile, {"vision_config", key});
    }
  }
  expect_refusal(with("num_heads", 5), ErrorCode::kCorruptFile, {"hidden_size", "num_heads (5)"});
  expect_refusal(with("num_heads", 16), ErrorCode::kUnsupported, {"heads of 3 numbers"});
  expect_refusal(with("out_hidden_size", 32), ErrorCode::kCorruptFile, {"hidden_size (64)"});
  expect_refusal(with("window_size", 7), ErrorCode::kCorruptFile, {"window_size", "at least"});
  expect_refusal(with("fullatt_block_indexes", {1, 1}), ErrorCode::kCorruptFile, {"different"});
  expect_refusal(with("fullatt_block_indexes", {3}), ErrorCode::kCorruptFile, {"from 0 to 2"});
  expect_refusal(with("fullatt_block_indexes", {-1}), ErrorCode::kCorruptFile, {"from 0 to 2"});
  expect_refusal(with("hidden_act", "relu"), ErrorCode::kUnsupported, {"hidden_act"});
  expect_refusal(with("in_chans", 4), ErrorCode::kUnsupported, {"in_chans"});
  expect_refusal(with("patch_size", {4, 5}), ErrorCode::kUnsupported, {"equal sides"});
  expect_refusal(with("gate", true), ErrorCode::kUnsupported, {"gate"});
  expect_refusal(with("rope_parameters", {{"rope_theta", 5.0}}), ErrorCode::kUnsupported,
                 {"rope_theta"});
  EXPECT_EQ(parse(with("patch_size", {4, 4})).vision->patch_size, 4);
}

TEST(VisionConfig, RefusesSectionsThatDontFit) {
  const auto with = [](const Json& sections) {
    Json json = config_of("qwen2_5_vl");
    json["rope_scaling"]["mrope_section"] = sections;
    return json;
  };
  for (const Json& sections :
       {Json{2, 3}, Json{2, 3, 4}, Json{-2, 5, 5}, Json{2, 3, "3"}, Json{1e18, 3, 3}, Json(8)}) {
    expect_refusal(with(sections), ErrorCode::kCorruptFile, {"mrope_section", "sum to 8"});
  }
  Json dynamic = with({2, 3, 3});
  dynamic["rope_scaling"]["type"] = "dynamic";
  dynamic["rope_scaling"]["factor"] = 2.0;
  expect_refusal(dynamic, ErrorCode::kUnsupported, {"three axes"});
  Json text = Json::parse(read_golden_text(load_golden_case("llama").folder / "config.json"));
  text["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {2, 3, 3}}};
  expect_refusal(text, ErrorCode::kUnsupported, {"mrope"});
}

TEST(VisionConfig, EveryCaseTextAloneHasNoTower) {
  EXPECT_FALSE(load_model_config(load_golden_case("llama").folder).vision);
}

// A tower's tensors have their places, in every golden checkpoint.
TEST(VisionSources, CheckpointsAreWhole) {
  for (const std::string& name : vision_golden_names()) {
    const auto folder = load_vision_golden(name).folder;
    const ModelConfig config = load_model_config(folder);
    const Checkpoint checkpoint(folder);
    const ModelSources sources = checkpoint_sources(config, checkpoint, {});
    ASSERT_TRUE(sources.vision) << name;
    EXPECT_GT(sources.num_parameters(), sources.active_parameters());
  }
}

}  // namespace
}  // namespace headrace
