// Configs of families with latent attention, with the keys that published files have.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cpp/model/expect_error.h"
#include "cpp/model/test_json.h"
#include "model/load/list_sources.h"
#include "model/load/load_config.h"
#include "model/sources/cache_layout.h"

namespace headrace {
namespace {

/// DeepSeek-V2-Lite.
Json deepseek() {
  return Json::parse(R"({"architectures":["DeepseekV2ForCausalLM"],"attention_bias":false,
      "attention_dropout":0.0,"auto_map":{"AutoModel":"modeling_deepseek.DeepseekV2Model"},
      "aux_loss_alpha":0.001,"bos_token_id":100000,"eos_token_id":100001,
      "first_k_dense_replace":1,"hidden_act":"silu","hidden_size":2048,"initializer_range":0.02,
      "intermediate_size":10944,"kv_lora_rank":512,"max_position_embeddings":163840,
      "model_type":"deepseek_v2","moe_intermediate_size":1408,"moe_layer_freq":1,"n_group":1,
      "n_routed_experts":64,"n_shared_experts":2,"norm_topk_prob":false,"num_attention_heads":16,
      "num_experts_per_tok":6,"num_hidden_layers":27,"num_key_value_heads":16,"pretraining_tp":1,
      "q_lora_rank":null,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"rms_norm_eps":1e-06,
      "rope_scaling":{"beta_fast":32,"beta_slow":1,"factor":40,"mscale":0.707,
      "mscale_all_dim":0.707,"original_max_position_embeddings":4096,"type":"yarn"},
      "rope_theta":10000,"routed_scaling_factor":1.0,"scoring_func":"softmax","seq_aux":true,
      "tie_word_embeddings":false,"topk_group":1,"topk_method":"greedy","torch_dtype":"bfloat16",
      "use_cache":true,"v_head_dim":128,"vocab_size":102400})");
}

/// GLM-4.7-Flash.
Json glm() {
  return Json::parse(R"({"architectures":["Glm4MoeLiteForCausalLM"],"attention_bias":false,
      "attention_dropout":0.0,"dtype":"bfloat16","eos_token_id":[154820,154827,154829],
      "first_k_dense_replace":1,"hidden_act":"silu","hidden_size":2048,"intermediate_size":10240,
      "kv_lora_rank":512,"max_position_embeddings":202752,"model_type":"glm4_moe_lite",
      "moe_intermediate_size":1536,"n_group":1,"n_routed_experts":64,"n_shared_experts":1,
      "norm_topk_prob":true,"num_attention_heads":20,"num_experts_per_tok":4,
      "num_hidden_layers":47,"num_key_value_heads":20,"num_nextn_predict_layers":1,
      "pad_token_id":154820,"partial_rotary_factor":1.0,"q_lora_rank":768,"qk_nope_head_dim":192,
      "qk_rope_head_dim":64,"rms_norm_eps":1e-05,"rope_scaling":null,"rope_theta":1000000,
      "routed_scaling_factor":1.8,"tie_word_embeddings":false,"topk_group":1,
      "topk_method":"noaux_tc","v_head_dim":256,"vocab_size":154880})");
}

/// DeepSeek-V3.
Json deepseek_v3() {
  return Json::parse(R"({"architectures":["DeepseekV3ForCausalLM"],"attention_bias":false,
      "attention_dropout":0.0,"auto_map":{"AutoModel":"modeling_deepseek.DeepseekV3Model"},
      "bos_token_id":0,"eos_token_id":1,"ep_size":1,"first_k_dense_replace":3,"hidden_act":"silu",
      "hidden_size":7168,"initializer_range":0.02,"intermediate_size":18432,"kv_lora_rank":512,
      "max_position_embeddings":163840,"model_type":"deepseek_v3","moe_intermediate_size":2048,
      "moe_layer_freq":1,"n_group":8,"n_routed_experts":256,"n_shared_experts":1,
      "norm_topk_prob":true,"num_attention_heads":128,"num_experts_per_tok":8,
      "num_hidden_layers":61,"num_key_value_heads":128,"num_nextn_predict_layers":1,
      "q_lora_rank":1536,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"rms_norm_eps":1e-06,
      "rope_scaling":{"beta_fast":32,"beta_slow":1,"factor":40,"mscale":1.0,"mscale_all_dim":1.0,
      "original_max_position_embeddings":4096,"type":"yarn"},"rope_theta":10000,
      "routed_scaling_factor":2.5,"scoring_func":"sigmoid","tie_word_embeddings":false,
      "topk_group":4,"topk_method":"noaux_tc","torch_dtype":"bfloat16","use_cache":true,
      "v_head_dim":128,"vocab_size":129280})");
}

/// What DeepSeek-V2 has in place of V2-Lite's.
Json whole_v2() {
  Json json = deepseek();
  json.merge_patch(Json::parse(R"({"hidden_size":5120,"intermediate_size":12288,
      "moe_intermediate_size":1536,"n_group":8,"n_routed_experts":160,"num_attention_heads":128,
      "num_hidden_layers":60,"num_key_value_heads":128,"q_lora_rank":1536,
      "routed_scaling_factor":16.0,"topk_group":3,"topk_method":"group_limited_greedy"})"));
  json["q_lora_rank"] = 1536;
  return json;
}

ModelConfig parse(const Json& json) { return parse_model_config(json.dump(), ""); }

Json with(Json json, const std::string& key, const Json& value) {
  json[key] = value;
  return json;
}

Json without(Json json, const std::string& key) {
  json.erase(key);
  return json;
}

void expect_refused(const Json& json, const std::string& key, const Json& value, ErrorCode code) {
  expect_error(code, {key}, [&] { parse(with(json, key, value)); });
}

ModelSources sources_of(const ModelConfig& config) {
  return list_sources(config, likely_naming(config), {});
}

/// Billions of parameters, and of those a token is multiplied by.
void expect_size(const Json& json, double all, double active) {
  const ModelSources sources = sources_of(parse(json));
  EXPECT_NEAR(static_cast<double>(sources.num_parameters()) / 1e9, all, 0.01);
  EXPECT_NEAR(static_cast<double>(sources.active_parameters()) / 1e9, active, 0.01);
}

TEST(LatentFamilies, PublishedModelsHaveTheirSizes) {
  expect_size(deepseek(), 15.71, 2.45);
  expect_size(whole_v2(), 235.74, 20.86);
  expect_size(deepseek_v3(), 671.03, 36.63);
  expect_size(glm(), 29.94, 3.58);
}

TEST(LatentFamilies, DeepseekV2Lite) {
  const ModelConfig c = parse(deepseek());
  EXPECT_EQ(c.latent.q_rank, 0);
  EXPECT_EQ(c.latent.rank, 512);
  EXPECT_EQ(c.latent.nope_dim, 128);
  EXPECT_EQ(c.latent.rope_dim, 64);
  EXPECT_EQ(c.latent.value_dim, 128);
  EXPECT_EQ(c.latent.row_dim(), 576);
  const double m = 0.1 * 0.707 * std::log(40.0) + 1;
  EXPECT_FLOAT_EQ(c.attention_scale, static_cast<float>(m * m / std::sqrt(192.0)));
  ASSERT_EQ(c.ropes.size(), 1u);
  EXPECT_EQ(c.ropes[0].rotary_dim, 64);
  EXPECT_EQ(c.ropes[0].style, RopeStyle::kInterleaved);
  EXPECT_FLOAT_EQ(c.ropes[0].attention_factor, 1.0f) << "both mscales are equal";
  const RouterSpec& router = c.moe.router;
  EXPECT_EQ(router.score, RouterSpec::Score::kSoftmax);
  EXPECT_EQ(router.num_experts, 64);
  EXPECT_EQ(router.top_k, 6);
  EXPECT_FALSE(router.normalize);
  EXPECT_FALSE(c.moe.has_correction);
  EXPECT_EQ(c.moe.expert_width, 1408);
  EXPECT_EQ(c.moe.shared_width, 2816);
  EXPECT_TRUE(!c.moe.sparse_layers[0] && c.moe.sparse_layers[1]);
  EXPECT_EQ(parse(without(deepseek(), "q_lora_rank")).latent.q_rank, 1536);
  EXPECT_EQ(parse(with(deepseek(), "routed_scaling_factor", 16.0)).moe.router.scale, 16.0f);
}

TEST(LatentFamilies, GroupsOfExperts) {
  const RouterSpec v2 = parse(whole_v2()).moe.router;
  EXPECT_EQ(v2.num_groups, 8);
  EXPECT_EQ(v2.top_groups, 3);
  EXPECT_TRUE(v2.by_best);
  EXPECT_EQ(v2.scale, 16.0f);
  const RouterSpec v3 = parse(deepseek_v3()).moe.router;
  EXPECT_EQ(v3.num_groups, 8);
  EXPECT_EQ(v3.top_groups, 4);
  EXPECT_FALSE(v3.by_best);
  EXPECT_EQ(v3.scale, 2.5f);
  Json bare = deepseek_v3();
  for (const char* key : {"n_group", "topk_group", "routed_scaling_factor", "topk_method"}) {
    bare.erase(key);
  }
  const RouterSpec same = parse(bare).moe.router;
  EXPECT_EQ(same.num_groups, 8);
  EXPECT_EQ(same.top_groups, 4);
  EXPECT_EQ(same.scale, 2.5f);
  expect_refused(whole_v2(), "topk_method", "noaux_tc", ErrorCode::kUnsupported);
  expect_refused(whole_v2(), "n_group", 7, ErrorCode::kCorruptFile);
}

TEST(LatentFamilies, YarnScalesScoresOnlyIfItSaysSo) {
  Json json = deepseek();
  json["rope_scaling"].erase("mscale_all_dim");
  EXPECT_FLOAT_EQ(parse(json).attention_scale, 1 / std::sqrt(192.0f));
  json["rope_scaling"]["mscale_all_dim"] = 1.0;
  const double m = 0.1 * std::log(40.0) + 1, turned = 0.1 * 0.707 * std::log(40.0) + 1;
  const ModelConfig c = parse(json);
  EXPECT_FLOAT_EQ(c.attention_scale, static_cast<float>(m * m / std::sqrt(192.0)));
  EXPECT_FLOAT_EQ(c.ropes[0].attention_factor, static_cast<float>(turned / m));
}

TEST(LatentFamilies, Glm4_7Flash) {
  const ModelConfig c = parse(glm());
  EXPECT_EQ(c.latent.q_rank, 768);
  EXPECT_EQ(c.latent.row_dim(), 576);
  EXPECT_EQ(c.latent.value_dim, 256);
  EXPECT_EQ(c.attention_scale, 0.0625f);
  EXPECT_EQ(c.ropes[0].style, RopeStyle::kInterleaved);
  EXPECT_FLOAT_EQ(c.ropes[0].inv_freq[31], std::pow(1e6f, -62.0f / 64));
  const RouterSpec& router = c.moe.router;
  EXPECT_EQ(router.score, RouterSpec::Score::kSigmoid);
  EXPECT_EQ(router.top_k, 4);
  EXPECT_TRUE(router.normalize);
  EXPECT_EQ(router.norm_eps, 1e-20f);
  EXPECT_EQ(router.scale, 1.8f);
  EXPECT_EQ(parse(without(glm(), "routed_scaling_factor")).moe.router.scale, 1.8f);
  EXPECT_TRUE(c.moe.has_correction);
  EXPECT_EQ(c.moe.shared_width, 1536);
  EXPECT_TRUE(!c.moe.sparse_layers[0] && c.moe.sparse_layers[1]);
}

TEST(LatentFamilies, GlmMayListItsLayers) {
  Json json = with(glm(), "num_hidden_layers", 3);
  json["mlp_layer_types"] = {"sparse", "dense", "sparse"};
  EXPECT_EQ(parse(json).moe.sparse_layers, (std::vector<bool>{true, false, true}));
  json["mlp_layer_types"] = nullptr;
  EXPECT_EQ(parse(json).moe.sparse_layers, (std::vector<bool>{false, true, true}));
  expect_refused(json, "mlp_layer_types", {"dense", "sparse"}, ErrorCode::kCorruptFile);
  expect_refused(json, "mlp_layer_types", {"dense", "sparse", "full"}, ErrorCode::kCorruptFile);
}

TEST(LatentFamilies, LayersNameWhatTheyRead) {
  const ModelSources lite = sources_of(parse(deepseek()));
  const std::vector<MatrixSource*> matrices = lite.layers[0].mixer->matrices();
  ASSERT_EQ(matrices.size(), 6u);
  EXPECT_TRUE(matrices[0]->empty()) << "queries have no vector of their own";
  EXPECT_EQ(matrices[1]->parts[0].name, "model.layers.0.self_attn.q_proj.weight");
  const MatrixSource &key_up = *matrices[3], &value_up = *matrices[4];
  EXPECT_TRUE(key_up.transposed);
  EXPECT_EQ(key_up.experts, 16);
  EXPECT_EQ(key_up.parts[1].offset, 256 * 512);
  EXPECT_FALSE(value_up.transposed);
  EXPECT_EQ(value_up.parts[1].name, "model.layers.0.self_attn.kv_b_proj.weight");
  EXPECT_EQ(value_up.parts[1].offset, (256 + 128) * 512);
  const ModelSources flash = sources_of(parse(glm()));
  EXPECT_EQ(flash.layers[46].mixer->matrices()[1]->parts[0].name,
            "model.layers.46.self_attn.q_b_proj.weight");
}

TEST(LatentFamilies, CachesKeepOneRowForAllHeads) {
  const CacheLayout layout = make_cache_layout(list_kept(sources_of(parse(glm()))), {});
  ASSERT_EQ(layout.num_groups(), 1);
  EXPECT_TRUE(layout.rows(0).latent);
  EXPECT_EQ(layout.rows(0).numbers(), 576);
}

TEST(LatentFamilies, WhatThisBuildDoesNotComputeIsRefused) {
  constexpr auto kUnsupported = ErrorCode::kUnsupported;
  for (const Json& json : {deepseek(), deepseek_v3(), glm()}) {
    expect_refused(json, "kv_lora_rank", 640, kUnsupported);  // with 64 that turn
    expect_refused(json, "num_key_value_heads", 4, kUnsupported);
  }
  expect_refused(glm(), "topk_method", "group_limited_greedy", kUnsupported);
  expect_refused(deepseek(), "scoring_func", "sigmoid", kUnsupported);
  expect_refused(deepseek(), "norm_topk_prob", true, kUnsupported);
  expect_refused(deepseek(), "moe_layer_freq", 2, kUnsupported);
  expect_refused(glm(), "rope_interleave", false, kUnsupported);
}

TEST(LatentFamilies, HostileValuesAreRefused) {
  constexpr auto kCorrupt = ErrorCode::kCorruptFile;
  for (const Json& json : {deepseek(), deepseek_v3(), glm()}) {
    expect_refused(json, "qk_rope_head_dim", 63, kCorrupt);
    expect_refused(json, "qk_rope_head_dim", 2, kCorrupt);
    expect_refused(json, "kv_lora_rank", int64_t{1} << 40, kCorrupt);
    expect_refused(json, "qk_nope_head_dim", -1, kCorrupt);
    expect_refused(json, "v_head_dim", 0, kCorrupt);
    expect_refused(json, "q_lora_rank", 0, kCorrupt);
    expect_refused(json, "first_k_dense_replace", -1, kCorrupt);
    expect_refused(json, "num_experts_per_tok", 257, kCorrupt);
  }
  expect_error(ErrorCode::kCorruptFile, {"num_experts_per_tok"},
               [] { parse(without(deepseek(), "num_experts_per_tok")); });
}

}  // namespace
}  // namespace headrace
