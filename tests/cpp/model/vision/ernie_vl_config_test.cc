// What the configs of ERNIE-4.5-VL mean, by the makers' keys and by transformers'.

#include <gtest/gtest.h>

#include <string>

#include "cpp/model/expect_error.h"
#include "cpp/model/golden_case.h"
#include "cpp/model/test_json.h"
#include "cpp/model/vision/vision_golden.h"
#include "model/blocks/expert_block.h"
#include "model/config/model_config.h"
#include "model/load/list_sources.h"
#include "model/load/load_config.h"
#include "model/sources/model_sources.h"

namespace headrace {
namespace {

/// With the keys that the makers' code writes, of the 28B-A3B's sizes.
Json makers_config() {
  return Json::parse(R"({"architectures":["Ernie4_5_VLMoeForConditionalGeneration"],
    "attention_probs_dropout_prob":0.0,"bos_token_id":1,"compression_ratio":1.0,"eos_token_id":2,
    "freq_allocation":20,"fuse_rms_norm":true,"hidden_act":"silu","hidden_dropout_prob":0.0,
    "hidden_size":2560,"im_patch_id":100295,"initializer_range":0.02,"intermediate_size":12288,
    "max_position_embeddings":131072,"max_text_id":100295,"mm_vocab_size":0,"modality_detach":true,
    "model_type":"ernie4_5_moe_vl","moe_capacity":[128,128,128],
    "moe_dense_experts_token_type_id":3,"moe_gate":"topk","moe_intermediate_size":[1536,512],
    "moe_k":6,"moe_layer_end_index":[29,28],"moe_layer_interval":1,"moe_layer_start_index":[1,1],
    "moe_num_experts":[64,64],"moe_num_shared_experts":2,"moe_use_aux_free":true,
    "moe_use_hard_gate":true,"moe_use_size_all2all":true,"moe_use_token_type_bias":false,
    "num_attention_heads":20,"num_hidden_layers":28,"num_key_value_heads":4,
    "num_nextn_predict_layers":0,"pad_token_id":0,"pixel_hidden_size":1280,"rms_norm_eps":1e-05,
    "rope_3d":true,"rope_theta":500000,"spatial_conv_size":2,"temporal_conv_size":2,
    "tie_word_embeddings":true,"torch_dtype":"bfloat16","use_bias":false,"use_rmsnorm":true,
    "vision_config":{"attn_sep":true,"depth":32,"embed_dim":1280,"hidden_act":"quick_gelu",
      "hidden_size":1280,"in_channels":3,"in_chans":3,"mlp_ratio":4,
      "model_type":"DFNRope_vision_transformer","num_heads":16,"patch_size":14,
      "spatial_merge_size":2,"spatial_patch_size":14,"tensor_parallel_degree":1,
      "use_recompute":true,"vit_first_fwd_bsz":128,"vit_num_recompute_layers":10000},
    "vocab_size":103424})");
}

Json transformers_config() {
  const auto folder = load_vision_golden("ernie4_5_vl_moe").folder;
  return Json::parse(read_golden_text(folder / "config.json"));
}

ModelConfig parse(const Json& json) { return parse_model_config(json.dump(), ""); }

Json with(const std::string& key, const Json& value) {
  Json json = makers_config();
  json[key] = value;
  return json;
}

Json tower_with(const std::string& key, const Json& value) {
  Json json = makers_config();
  json["vision_config"][key] = value;
  return json;
}

void expect_refusal(const Json& json, ErrorCode code, std::initializer_list<std::string> parts) {
  expect_error(code, parts, [&json] { parse(json); });
}

TEST(ErnieVlConfig, MakersKeys) {
  const ModelConfig config = parse(makers_config());
  const MoeConfig& moe = config.moe;
  EXPECT_EQ(moe.router.num_experts, 64);
  EXPECT_EQ(moe.router.top_k, 6);
  EXPECT_EQ(moe.expert_width, 1536);
  EXPECT_EQ(moe.vision_width, 512);
  EXPECT_EQ(moe.shared_width, 3072);
  EXPECT_TRUE(moe.has_correction);
  EXPECT_EQ(moe.first_vision_token, 100295);
  for (size_t layer = 0; layer < 28; ++layer) EXPECT_EQ(moe.sparse_layers[layer], layer > 0);
  ASSERT_TRUE(config.vision);
  const VisionConfig& vision = *config.vision;
  EXPECT_EQ(vision.depth, 32);
  EXPECT_EQ(vision.head_dim, 80);
  EXPECT_EQ(vision.mlp_width, 5120);
  EXPECT_EQ(vision.patch_size, 14);
  EXPECT_EQ(vision.temporal_patch_size, 1);
  EXPECT_EQ(vision.merge_size, 2);
  EXPECT_EQ(vision.merge_grids, 2);
  EXPECT_EQ(vision.activation, Activation::kQuickGelu);
  EXPECT_FLOAT_EQ(vision.norm_eps, 1e-6f);
  EXPECT_FLOAT_EQ(vision.out_norm_eps, 1e-5f);
  EXPECT_EQ(config.ropes[0].style, RopeStyle::kInterleaved);
  ASSERT_EQ(config.ropes[0].axes.size(), 64u);
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(config.ropes[0].axes[i], i < 44 ? 1 + i % 2 : 0) << i;
  }
}

// 29.40e9 parameters with a tied head, of which a token of text meets about 3e9 (the router of
// vision and its experts aren't among them).
TEST(ErnieVlConfig, Parameters) {
  const ModelConfig config = parse(makers_config());
  const ModelSources sources = list_sources(config, likely_naming(config));
  EXPECT_NEAR(static_cast<double>(sources.num_parameters()), 29.40e9, 0.01e9);
  EXPECT_NEAR(static_cast<double>(sources.active_parameters()), 3.35e9, 0.02e9);
}

TEST(ErnieVlConfig, BothSpellingsMeanTheSame) {
  const ModelConfig a = parse(transformers_config());
  const ModelConfig b = load_model_config(load_vision_golden("ernie4_5_vl").folder);
  EXPECT_EQ(a.moe.router.num_experts, b.moe.router.num_experts);
  EXPECT_EQ(a.moe.router.top_k, b.moe.router.top_k);
  EXPECT_EQ(a.moe.expert_width, b.moe.expert_width);
  EXPECT_EQ(a.moe.vision_width, b.moe.vision_width);
  EXPECT_EQ(a.moe.shared_width, b.moe.shared_width);
  EXPECT_EQ(a.moe.sparse_layers, b.moe.sparse_layers);
  EXPECT_EQ(a.moe.first_vision_token, b.moe.first_vision_token);
  EXPECT_EQ(a.ropes[0].axes, b.ropes[0].axes);
  EXPECT_EQ(a.ropes[0].axes, (std::vector<uint8_t>{1, 2, 1, 2, 1, 2, 0, 0}));
  EXPECT_EQ(a.vision->mlp_width, b.vision->mlp_width);
  EXPECT_EQ(a.vision->width, b.vision->width);
}

TEST(ErnieVlConfig, SectionsOfEitherOrder) {
  const auto axes = [](const Json& sections) {
    Json json = transformers_config();
    json["text_config"]["rope_parameters"]["mrope_section"] = sections;
    return parse(json).ropes[0].axes;
  };
  const std::vector<uint8_t> two_of_time{1, 2, 1, 2, 1, 2, 0, 0};
  EXPECT_EQ(axes({3, 3, 2}), two_of_time);
  EXPECT_EQ(axes({2, 3, 3}), two_of_time);
  EXPECT_EQ(axes({0, 4, 4}), (std::vector<uint8_t>{1, 2, 1, 2, 1, 2, 1, 2}));
  const auto flat = [](const Json& sections) {
    return parse(with("rope_scaling", {{"type", "default"}, {"mrope_section", sections}}))
        .ropes[0]
        .axes;
  };
  EXPECT_EQ(flat({22, 22, 20}), parse(makers_config()).ropes[0].axes);
  EXPECT_EQ(flat({20, 22, 22}), parse(makers_config()).ropes[0].axes);
  for (const Json& bad : {Json{3, 2, 3}, Json{3, 3, 3}, Json{3, 3}, Json{-2, 5, 5},
                          Json{1e18, 3, 3}, Json{3, 3, "2"}, Json(8)}) {
    expect_error(ErrorCode::kCorruptFile, {"mrope_section", "sum to 8"}, [&] { axes(bad); });
  }
  Json json = transformers_config();
  json["freq_allocation"] = 4;
  expect_refusal(json, ErrorCode::kCorruptFile, {"freq_allocation", "mrope_section", "2 of time"});
  json["text_config"]["rope_parameters"]["rope_type"] = "linear";
  json["text_config"]["rope_parameters"]["factor"] = 2.0;
  expect_refusal(json, ErrorCode::kUnsupported, {"rope_type"});
  expect_refusal(with("freq_allocation", 21), ErrorCode::kCorruptFile, {"freq_allocation"});
  expect_refusal(with("freq_allocation", 66), ErrorCode::kCorruptFile, {"freq_allocation"});
  expect_refusal(with("freq_allocation", -1), ErrorCode::kCorruptFile, {"freq_allocation"});
}

TEST(ErnieVlConfig, LayersWithExperts) {
  const auto layers = [](const Json& json) { return parse(json).moe.sparse_layers; };
  Json json = makers_config();
  json["num_hidden_layers"] = 4;
  EXPECT_EQ(layers(json), (std::vector<bool>{false, true, true, true}));
  json["moe_layer_start_index"] = 2;
  json["moe_layer_end_index"] = -1;
  EXPECT_EQ(layers(json), (std::vector<bool>{false, false, true, true}));
  json["moe_layer_start_index"] = {1, 2};
  expect_refusal(json, ErrorCode::kUnsupported, {"moe_layer_start_index", "same layers"});
  json["moe_layer_start_index"] = {1, 1};
  json["moe_layer_end_index"] = {2, 3};
  expect_refusal(json, ErrorCode::kUnsupported, {"moe_layer_end_index", "same layers"});
  json = transformers_config();
  json["text_config"]["mlp_layer_types"] = {"sparse", "dense", "sparse"};
  EXPECT_EQ(layers(json), (std::vector<bool>{true, false, true}));
  json["text_config"]["moe_layer_start_index"] = 1;
  expect_refusal(json, ErrorCode::kCorruptFile, {"moe_layer_start_index", "mlp_layer_types"});
  json = transformers_config();
  json["text_config"]["mlp_layer_types"] = {"dense", "sparse"};
  expect_refusal(json, ErrorCode::kCorruptFile, {"mlp_layer_types"});
  json["text_config"]["mlp_layer_types"] = {"dense", "sparse", "gated"};
  expect_refusal(json, ErrorCode::kUnsupported, {"mlp_layer_types"});
}

TEST(ErnieVlConfig, RefusesHostileNumbersByName) {
  for (const char* key : {"moe_num_experts", "moe_intermediate_size", "moe_layer_start_index"}) {
    for (const Json& value :
         {Json{64}, Json{64, 64, 64}, Json{-1, -1}, Json{1e18, 1e18}, Json{"x", "x"}, Json("x")}) {
      expect_refusal(with(key, value), ErrorCode::kCorruptFile, {key});
    }
  }
  for (const char* key : {"moe_k", "moe_num_shared_experts", "im_patch_id", "pixel_hidden_size",
                          "spatial_conv_size", "temporal_conv_size"}) {
    for (const Json& value : {Json(-1), Json(1e18), Json("x"), Json(1.5)}) {
      expect_refusal(with(key, value), ErrorCode::kCorruptFile, {key});
    }
  }
  for (const char* key : {"depth", "hidden_size", "num_heads", "mlp_ratio", "patch_size",
                          "spatial_merge_size", "embed_dim", "intermediate_size"}) {
    for (const Json& value : {Json(0), Json(-1), Json(1e18), Json("x"), Json(1.5)}) {
      expect_refusal(tower_with(key, value), ErrorCode::kCorruptFile, {"vision_config", key});
    }
  }
}

TEST(ErnieVlConfig, RefusesWhatItDoesNotCompute) {
  expect_refusal(with("moe_num_experts", {64, 32}), ErrorCode::kUnsupported, {"moe_num_experts"});
  expect_refusal(with("moe_intermediate_size", 512), ErrorCode::kCorruptFile, {"two widths"});
  Json few = with("moe_num_experts", {4, 4});
  expect_refusal(few, ErrorCode::kCorruptFile, {"moe_k", "(4)"});
  expect_refusal(with("rope_3d", false), ErrorCode::kUnsupported, {"rope_3d"});
  expect_refusal(with("use_temporal_conv", false), ErrorCode::kUnsupported, {"use_temporal_conv"});
  expect_refusal(with("mm_vocab_size", 8192), ErrorCode::kUnsupported, {"mm_vocab_size"});
  expect_refusal(with("max_text_id", 100000), ErrorCode::kCorruptFile,
                 {"max_text_id", "im_patch_id", "100295"});
  Json behind = with("im_patch_id", 103424);
  behind.erase("max_text_id");
  expect_refusal(behind, ErrorCode::kCorruptFile, {"im_patch_id", "vocab_size (103424)"});
  expect_refusal(with("vocab_size", 1000), ErrorCode::kCorruptFile, {"im_patch_id"});
  expect_refusal(with("image_start_token_id", 7), ErrorCode::kUnsupported,
                 {"image_start_token_id", "100295"});
  expect_refusal(with("pixel_hidden_size", 1024), ErrorCode::kCorruptFile,
                 {"vision_config (1280)"});
  expect_refusal(with("spatial_conv_size", 4), ErrorCode::kCorruptFile, {"vision_config (2)"});
  expect_refusal(tower_with("temporal_merge_size", 4), ErrorCode::kUnsupported,
                 {"temporal_merge_size"});
  expect_refusal(tower_with("embed_dim", 640), ErrorCode::kCorruptFile, {"embed_dim", "(1280)"});
  expect_refusal(tower_with("intermediate_size", 5000), ErrorCode::kCorruptFile, {"mlp_ratio"});
}

// Both groups, by the names and in the layouts that checkpoints have.
TEST(ErnieVlSources, GroupsOfExperts) {
  const ModelConfig config = parse(makers_config());
  for (const CheckpointLayout layout : {CheckpointLayout::kTorch, CheckpointLayout::kPaddle}) {
    const bool paddle = layout == CheckpointLayout::kPaddle;
    const ModelSources sources =
        list_sources(config, {layout, "ernie.", ExpertLayout::kSeparate, "vision_model."});
    const auto& block = dynamic_cast<ExpertSources&>(*sources.layers[1].feed_forward);
    ASSERT_NE(block.vision, nullptr);
    const ExpertGroup* const vision = block.vision.get();
    const std::string mlp = "ernie.layers.1.mlp.";
    EXPECT_EQ(block.experts.gate.parts[0].name, mlp + "gate.weight");
    EXPECT_EQ(vision->gate.parts[0].name, mlp + "gate.weight_1");
    for (const ExpertGroup* group : {&block.experts, vision}) {
      EXPECT_TRUE(group->gate.transposed);
      EXPECT_EQ(group->gate_up.transposed, paddle);
      EXPECT_EQ(group->correction.parts[0].shape, (std::vector<int64_t>{2, 64}));
      EXPECT_EQ(group->correction.parts[0].offset, group == &block.experts ? 0 : 64);
    }
    EXPECT_EQ(vision->down.parts[0].name, mlp + "experts.64.down_proj.weight");
    EXPECT_EQ(vision->down.k, 512);
    EXPECT_EQ(block.experts.down.k, 1536);
    EXPECT_EQ(block.shared->width(), 3072);
    EXPECT_EQ(sources.vision->patches.matrix.transposed, paddle);
  }
}

TEST(ErnieVlSources, ResamplerStandsBesideTheDecoder) {
  const ModelConfig config = parse(makers_config());
  for (const auto& [prefix, resampler] :
       {std::pair<std::string, std::string>{"model.", "model.resampler_model.mlp.weight"},
        {"model.language_model.", "model.resampler_model.mlp.weight"},
        {"ernie.", "ernie.resampler_model.mlp.weight"}}) {
    const ModelSources sources = list_sources(
        config, {CheckpointLayout::kTorch, prefix, ExpertLayout::kSeparate, "vision_model."});
    ASSERT_TRUE(sources.vision && sources.vision->resampler);
    EXPECT_EQ(sources.vision->resampler->out.matrix.parts[0].name, resampler);
    EXPECT_TRUE(sources.vision->mergers.empty());
  }
}

}  // namespace
}  // namespace headrace
