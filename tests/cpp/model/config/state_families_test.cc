// Configs of families whose layers keep a state, with the keys that published files have.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cpp/model/expect_error.h"
#include "cpp/model/golden_case.h"
#include "cpp/model/test_json.h"
#include "model/load/list_sources.h"
#include "model/load/load_config.h"
#include "model/sources/cache_layout.h"

namespace headrace {
namespace {

Json lfm2() {
  return Json::parse(R"({"architectures":["Lfm2ForCausalLM"],"block_auto_adjust_ff_dim":true,
      "block_dim":2048,"block_ff_dim":12288,"block_ffn_dim_multiplier":1.0,
      "block_mlp_init_scale":1.0,"block_multiple_of":256,"block_norm_eps":1e-05,
      "block_out_init_scale":1.0,"block_use_swiglu":true,"block_use_xavier_init":true,
      "bos_token_id":1,"conv_L_cache":3,"conv_bias":false,"conv_dim":2048,"conv_dim_out":2048,
      "conv_use_xavier_init":true,"eos_token_id":7,"full_attn_idxs":[2,5,8,10,12,14],
      "hidden_size":2048,"max_position_embeddings":128000,"model_type":"lfm2","norm_eps":1e-05,
      "num_attention_heads":32,"num_heads":32,"num_hidden_layers":16,"num_key_value_heads":8,
      "rope_theta":1000000.0,"torch_dtype":"bfloat16","use_pos_enc":true,"vocab_size":65536})");
}

/// Qwen3.5-4B's text model.
Json qwen3_5() {
  return Json::parse(R"({"architectures":["Qwen3_5ForCausalLM"],"attention_bias":false,
      "attn_output_gate":true,"full_attention_interval":4,"head_dim":256,"hidden_act":"silu",
      "hidden_size":2560,"intermediate_size":9216,"linear_conv_kernel_dim":4,
      "linear_key_head_dim":128,"linear_num_key_heads":16,"linear_num_value_heads":32,
      "linear_value_head_dim":128,"mamba_ssm_dtype":"float32","max_position_embeddings":262144,
      "mlp_only_layers":[],"model_type":"qwen3_5_text","mtp_num_hidden_layers":1,
      "mtp_use_dedicated_embeddings":false,"num_attention_heads":16,"num_hidden_layers":32,
      "num_key_value_heads":4,"rms_norm_eps":1e-06,"rope_parameters":{"mrope_interleaved":true,
      "mrope_section":[11,11,10],"partial_rotary_factor":0.25,"rope_theta":10000000,
      "rope_type":"default"},"tie_word_embeddings":true,"vocab_size":248320})");
}

/// Qwen3.6-35B-A3B's.
Json qwen3_5_moe() {
  Json out = qwen3_5();
  out.update(Json::parse(R"({"architectures":["Qwen3_5MoeForCausalLM"],"hidden_size":2048,
      "model_type":"qwen3_5_moe_text","moe_intermediate_size":512,"num_experts":256,
      "num_experts_per_tok":8,"num_hidden_layers":40,"num_key_value_heads":2,
      "router_aux_loss_coef":0.001,"shared_expert_intermediate_size":512,
      "tie_word_embeddings":false})"));
  out.erase("intermediate_size");
  return out;
}

/// Qwen3-Next-80B-A3B.
Json qwen3_next() {
  return Json::parse(R"({"architectures":["Qwen3NextForCausalLM"],"decoder_sparse_step":1,
      "full_attention_interval":4,"head_dim":256,"hidden_act":"silu","hidden_size":2048,
      "intermediate_size":5120,"linear_conv_kernel_dim":4,"linear_key_head_dim":128,
      "linear_num_key_heads":16,"linear_num_value_heads":32,"linear_value_head_dim":128,
      "max_position_embeddings":262144,"mlp_only_layers":[],"model_type":"qwen3_next",
      "moe_intermediate_size":512,"norm_topk_prob":true,"num_attention_heads":16,
      "num_experts":512,"num_experts_per_tok":10,"num_hidden_layers":48,"num_key_value_heads":2,
      "partial_rotary_factor":0.25,"rms_norm_eps":1e-06,"rope_scaling":null,
      "rope_theta":10000000,"shared_expert_intermediate_size":512,"tie_word_embeddings":false,
      "vocab_size":151936})");
}

/// Granite-4.0-H-Small.
Json granite() {
  Json out = Json::parse(R"({"architectures":["GraniteMoeHybridForCausalLM"],
      "attention_bias":false,"attention_multiplier":0.0078125,"embedding_multiplier":12,
      "hidden_act":"silu","hidden_size":4096,"init_method":"mup","intermediate_size":768,
      "logits_scaling":16,"mamba_chunk_size":256,"mamba_conv_bias":true,"mamba_d_conv":4,
      "mamba_d_head":64,"mamba_d_state":128,"mamba_expand":2,"mamba_n_groups":1,
      "mamba_n_heads":128,"mamba_proj_bias":false,"max_position_embeddings":131072,
      "model_type":"granitemoehybrid","normalization_function":"rmsnorm",
      "num_attention_heads":32,"num_experts_per_tok":10,"num_hidden_layers":40,
      "num_key_value_heads":8,"num_local_experts":72,"position_embedding_type":"nope",
      "residual_multiplier":0.22,"rms_norm_eps":1e-05,"rope_scaling":null,"rope_theta":10000,
      "router_aux_loss_coef":0.01,"shared_intermediate_size":1536,"tie_word_embeddings":true,
      "vocab_size":100352})");
  std::vector<std::string> types(40, "mamba");
  for (const size_t layer : {5, 15, 25, 35}) types[layer] = "attention";
  out["layer_types"] = types;
  return out;
}

/// NVIDIA-Nemotron-Nano-9B-v2.
Json nemotron_nano() {
  return Json::parse(R"({"architectures":["NemotronHForCausalLM"],"attention_bias":false,
      "chunk_size":128,"conv_kernel":4,"expand":2,"head_dim":128,"hidden_dropout":0.0,
      "hidden_size":4480,"hybrid_override_pattern":
      "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-","intermediate_size":15680,
      "layer_norm_epsilon":1e-05,"mamba_head_dim":80,"mamba_hidden_act":"silu",
      "mamba_num_heads":128,"mamba_proj_bias":false,"max_position_embeddings":131072,
      "mlp_bias":false,"mlp_hidden_act":"relu2","model_type":"nemotron_h","n_groups":8,
      "num_attention_heads":40,"num_hidden_layers":56,"num_key_value_heads":8,
      "num_logits_to_keep":1,"rescale_prenorm_residual":true,"residual_in_fp32":false,
      "rms_norm_eps":1e-05,"sliding_window":null,"ssm_state_size":128,
      "tie_word_embeddings":false,"time_step_floor":0.0001,"time_step_max":0.1,
      "time_step_min":0.001,"time_step_rank":256,"use_bias":false,"use_conv_bias":true,
      "use_mamba_kernels":true,"vocab_size":131072})");
}

/// Nemotron 3 Nano 30B-A3B.
Json nemotron_3() {
  Json out = nemotron_nano();
  out.update(Json::parse(R"({"hidden_size":2688,"hybrid_override_pattern":
      "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME","intermediate_size":1856,
      "mamba_head_dim":64,"mamba_num_heads":64,"moe_intermediate_size":1856,
      "moe_shared_expert_intermediate_size":3712,"n_group":1,"n_routed_experts":128,
      "n_shared_experts":1,"norm_eps":1e-05,"norm_topk_prob":true,"num_attention_heads":32,
      "num_experts_per_tok":6,"num_hidden_layers":52,"num_key_value_heads":2,
      "partial_rotary_factor":1.0,"rope_theta":10000,"routed_scaling_factor":2.5,
      "topk_group":1})"));
  return out;
}

/// Falcon-H1-0.5B.
Json falcon() {
  return Json::parse(R"({"architectures":["FalconH1ForCausalLM"],"attention_bias":false,
      "attention_in_multiplier":1.0,"attention_out_multiplier":0.9375,
      "attn_layer_indices":null,"embedding_multiplier":5.656854249492381,"head_dim":64,
      "hidden_act":"silu","hidden_size":1024,"intermediate_size":2048,"key_multiplier":0.5,
      "lm_head_multiplier":0.0390625,"mamba_chunk_size":128,"mamba_conv_bias":true,
      "mamba_d_conv":4,"mamba_d_head":64,"mamba_d_ssm":1536,"mamba_d_state":128,
      "mamba_expand":2,"mamba_n_groups":1,"mamba_n_heads":24,"mamba_norm_before_gate":false,
      "mamba_proj_bias":false,"mamba_rms_norm":false,"mamba_use_mlp":true,
      "max_position_embeddings":16384,"mlp_bias":false,"mlp_expansion_factor":8,
      "mlp_multipliers":[0.8838834764831844,0.5859375],"model_type":"falcon_h1",
      "num_attention_heads":8,"num_hidden_layers":36,"num_key_value_heads":2,
      "num_logits_to_keep":1,"projectors_bias":false,"rms_norm_eps":1e-05,
      "rope_scaling":null,"rope_theta":100000000000.0,"ssm_in_multiplier":1.25,
      "ssm_multipliers":[0.3535,0.25,0.3535,0.5,0.3535],"ssm_out_multiplier":0.2357,
      "tie_word_embeddings":false,"time_step_floor":0.0001,"time_step_max":0.1,
      "time_step_min":0.001,"time_step_rank":"auto","vocab_size":32784})");
}

ModelConfig parse(const Json& json) { return parse_model_config(json.dump(), ""); }

Json with(Json json, const std::string& key, const Json& value) {
  json[key] = value;
  return json;
}

Json without(Json json, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) json.erase(key);
  return json;
}

void expect_refused(const Json& json, const std::string& key, const Json& value,
                    ErrorCode code = ErrorCode::kUnsupported) {
  expect_error(code, {key}, [&] { parse(with(json, key, value)); });
}

/// Billions of parameters, and of those a token is multiplied by.
void expect_size(const Json& json, double all, double active) {
  const ModelConfig config = parse(json);
  const ModelSources sources = list_sources(config, likely_naming(config), {});
  EXPECT_NEAR(static_cast<double>(sources.num_parameters()) / 1e9, all, 0.006 * all);
  EXPECT_NEAR(static_cast<double>(sources.active_parameters()) / 1e9, active, 0.006 * active);
}

TEST(StateFamilies, PublishedModelsHaveTheirSizes) {
  expect_size(lfm2(), 1.17, 1.17);
  expect_size(qwen3_5(), 4.21, 4.21);
  expect_size(qwen3_5_moe(), 34.7, 2.95);
  expect_size(qwen3_next(), 79.7, 3.56);
  expect_size(granite(), 32.2, 8.8);
  expect_size(nemotron_nano(), 8.89, 8.3);
  expect_size(nemotron_3(), 31.6, 3.23);
  expect_size(falcon(), 0.521, 0.488);
}

TEST(StateFamilies, Lfm2) {
  const ModelConfig c = parse(lfm2());
  EXPECT_EQ(c.intermediate_size, 8192);
  EXPECT_TRUE(c.state.has(0) && c.state.has(1) && !c.state.has(2) && c.state.has(15));
  EXPECT_EQ(c.state.conv_kernel, 3);
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_FALSE(parse(with(lfm2(), "tie_embedding", false)).tie_word_embeddings);
  EXPECT_EQ(parse(with(lfm2(), "block_auto_adjust_ff_dim", false)).intermediate_size, 12288);
  EXPECT_EQ(parse(with(lfm2(), "block_ffn_dim_multiplier", nullptr)).intermediate_size, 8192);
  EXPECT_EQ(parse(with(lfm2(), "block_ffn_dim_multiplier", 0.7)).intermediate_size, 5888);
  EXPECT_TRUE(parse(Json{{"model_type", "lfm2"}}).state.layers.empty()) << "as transformers has it";
  expect_refused(lfm2(), "full_attn_idxs", {16}, ErrorCode::kCorruptFile);
  expect_error(ErrorCode::kUnsupported, {"layer_types", "attention in some layer"},
               [] { parse(with(lfm2(), "full_attn_idxs", Json::array())); });
  expect_refused(lfm2(), "conv_L_cache", 9);
  expect_refused(lfm2(), "conv_L_cache", 1);
  expect_refused(lfm2(), "conv_dim", 1024);
  expect_refused(lfm2(), "hidden_act", "gelu");
  const ModelConfig experts = parse(Json{{"model_type", "lfm2_moe"},
                                         {"layer_types", Json::array({"conv", "full_attention"})},
                                         {"num_hidden_layers", 2},
                                         {"num_dense_layers", 1}});
  EXPECT_EQ(experts.moe.sparse_layers, (std::vector<bool>{false, true}));
  EXPECT_EQ(experts.moe.router.score, RouterSpec::Score::kSigmoid);
}

TEST(StateFamilies, GraniteHybrid) {
  const ModelConfig c = parse(granite());
  EXPECT_TRUE(c.state.has(4) && !c.state.has(5));
  EXPECT_TRUE(c.ropes.empty());
  EXPECT_EQ(c.residual_scale, 0.22f);
  EXPECT_EQ(c.moe.router.score, RouterSpec::Score::kSoftmaxAfterTopK);
  EXPECT_EQ(parse(with(granite(), "position_embedding_type", "rope")).ropes.size(), 1u);
  const ModelConfig dense = parse(with(granite(), "num_local_experts", 0));
  EXPECT_EQ(dense.moe.router.num_experts, 0);
  EXPECT_EQ(dense.intermediate_size, 1536);
  EXPECT_EQ(parse(with(granite(), "mamba_d_head", "auto")).state.scan.head_dim, 64);
  EXPECT_EQ(parse(with(granite(), "time_step_limit", {0.001, 0.5})).state.scan.dt_max, 0.5f);
  expect_refused(granite(), "time_step_limit", {0.5, 0.1}, ErrorCode::kCorruptFile);
  expect_refused(granite(), "mamba_n_heads", 64, ErrorCode::kCorruptFile);
  expect_refused(granite(), "mamba_n_groups", 3, ErrorCode::kCorruptFile);
  EXPECT_TRUE(parse(with(granite(), "mamba_proj_bias", true)).state.scan_out_bias);
  const Json infinity{{"__float__", "Infinity"}};
  EXPECT_TRUE(std::isinf(
      parse(with(granite(), "time_step_limit", Json::array({0.0, infinity}))).state.scan.dt_max));
  expect_refused(granite(), "mamba_d_state", 4096);
  expect_refused(granite(), "position_embedding_type", "alibi");
  expect_refused(granite(), "layer_types", nullptr);
  ModelSources sources = list_sources(c, likely_naming(c), {});
  expect_error(ErrorCode::kUnsupported, {"tensor_parallel_size"},
               [&] { share_sources({.index = 0, .count = 2}, sources); });
}

TEST(StateFamilies, NemotronH) {
  const ModelConfig c = parse(nemotron_3());
  EXPECT_EQ(c.num_layers, 52);
  EXPECT_EQ(c.state.blocks[5], LayerBlock::kAttention);
  EXPECT_EQ(c.state.blocks[51], LayerBlock::kExperts);
  EXPECT_TRUE(c.ropes.empty());
  EXPECT_EQ(c.moe.router.scale, 2.5f);
  EXPECT_EQ(parse(nemotron_nano()).moe.router.num_experts, 0);
  Json listed = without(nemotron_3(), {"hybrid_override_pattern", "num_hidden_layers"});
  const Json types = Json::array({"moe", "mamba", "attention", "mlp"});
  EXPECT_EQ(parse(with(listed, "layers_block_type", types)).num_layers, 4);
  EXPECT_EQ(parse(with(listed, "layer_types", types)).state.blocks[0], LayerBlock::kExperts);
  expect_refused(listed, "layers_block_type", Json::array(), ErrorCode::kCorruptFile);
  expect_refused(listed, "layers_block_type", Json::array({"mlp"}));
  expect_refused(listed, "layers_block_type", Json::array({"full_attention", "rwkv"}));
  expect_refused(nemotron_3(), "hybrid_override_pattern", "MX*");
  expect_refused(nemotron_3(), "num_hidden_layers", 51, ErrorCode::kCorruptFile);
  expect_error(ErrorCode::kCorruptFile, {"hybrid_override_pattern", "agree"},
               [&] { parse(with(nemotron_3(), "layers_block_type", types)); });
  expect_refused(nemotron_3(), "attention_bias", true);
  expect_refused(nemotron_3(), "attention_head_dim", 64);
  expect_refused(nemotron_3(), "sliding_window", 128);
  expect_refused(nemotron_3(), "mlp_hidden_act", "silu");
  expect_refused(nemotron_3(), "mamba_hidden_act", "gelu");
  expect_refused(nemotron_3(), "mamba_proj_bias", true);
  expect_refused(nemotron_3(), "n_groups", 7, ErrorCode::kCorruptFile);
  expect_refused(nemotron_3(), "n_group", 3, ErrorCode::kCorruptFile);
  expect_refused(with(nemotron_3(), "n_group", 64), "topk_group", 2, ErrorCode::kCorruptFile);
  EXPECT_EQ(parse(with(with(nemotron_3(), "n_group", 8), "topk_group", 4)).moe.router.top_groups,
            4);
}

TEST(StateFamilies, FalconH1) {
  const ModelConfig c = parse(falcon());
  EXPECT_EQ(c.gate.factor, 0.8838834764831844f);
  EXPECT_EQ(c.feed_forward_scale, 0.5859375f);
  EXPECT_EQ(c.logit_scale, 0.0390625f);
  EXPECT_EQ(c.attention_scale, 0.0625f);
  EXPECT_FALSE(c.state.scan_norm);
  EXPECT_EQ(parse(with(falcon(), "ssm_multipliers", nullptr)).state.scan_factors[4], 1.0f);
  const Json wide = with(with(falcon(), "mamba_d_ssm", nullptr), "mamba_d_head", "auto");
  EXPECT_EQ(parse(with(wide, "mamba_n_heads", 32)).state.scan.head_dim, 64);
  expect_refused(falcon(), "mamba_n_heads", 25, ErrorCode::kCorruptFile);
  expect_refused(falcon(), "ssm_multipliers", {1, 2, 3, 4}, ErrorCode::kCorruptFile);
  expect_refused(falcon(), "mlp_multipliers", {1, "2"}, ErrorCode::kCorruptFile);
  expect_refused(falcon(), "key_multiplier", 0, ErrorCode::kCorruptFile);
  expect_refused(falcon(), "hidden_act", "gelu");
  expect_refused(falcon(), "mamba_use_mlp", false);
  expect_refused(falcon(), "attn_layer_indices", {0, 1});
  expect_refused(falcon(), "layer_types", Json(std::vector<std::string>(36, "mamba")));
  ModelSources sources = list_sources(c, likely_naming(c), {});
  expect_error(ErrorCode::kUnsupported, {"tensor_parallel_size"},
               [&] { share_sources({.index = 0, .count = 2}, sources); });
}

// As files of transformers 4 have it.
TEST(StateFamilies, InfinityMayBeALiteral) {
  const ModelConfig c = load_model_config(load_golden_case("nemotron_h").folder);
  EXPECT_TRUE(std::isinf(c.state.scan.dt_max));
}

TEST(StateFamilies, Qwen3_5) {
  const ModelConfig c = parse(qwen3_5());
  EXPECT_TRUE(c.state.has(30) && !c.state.has(31) && !c.state.has(3));
  EXPECT_EQ(c.ropes.front().rotary_dim, 64);
  EXPECT_TRUE(c.attention_gate && c.qk_norm);
  EXPECT_EQ(c.norm_offset, 1.0f);
  Json no_theta = qwen3_5();
  no_theta["rope_parameters"].erase("rope_theta");
  expect_error(ErrorCode::kCorruptFile, {"rope_theta"}, [&] { parse(no_theta); });
  expect_refused(qwen3_5(), "attn_output_gate", false);
  expect_refused(qwen3_5(), "attention_bias", true);
  expect_refused(qwen3_5(), "hidden_act", "gelu");
  expect_refused(qwen3_5(), "mamba_ssm_dtype", "bfloat16");
  expect_refused(qwen3_5(), "output_gate_type", "sigmoid");
  expect_refused(qwen3_5(), "linear_key_head_dim", 100);
  expect_refused(qwen3_5(), "linear_value_head_dim", 512);
  expect_refused(qwen3_5(), "linear_conv_kernel_dim", 16);
  expect_refused(qwen3_5(), "linear_num_value_heads", 24, ErrorCode::kCorruptFile);
  expect_refused(qwen3_5(), "layer_types", Json(std::vector<std::string>(32, "linear_attention")));
  expect_refused(qwen3_5(), "layer_types", Json(std::vector<std::string>(32, "mamba")));
  expect_refused(qwen3_5_moe(), "norm_topk_prob", false);
  EXPECT_FALSE(parse(with(qwen3_next(), "norm_topk_prob", false)).moe.router.normalize);
}

Json qwen3_5_with_tower() {
  Json text = qwen3_5();
  text.erase("architectures");
  return {
      {"architectures", Json::array({"Qwen3_5ForConditionalGeneration"})},
      {"model_type", "qwen3_5"},
      {"image_token_id", 248056},
      {"video_token_id", 248057},
      {"vision_start_token_id", 248053},
      {"vision_end_token_id", 248054},
      {"tie_word_embeddings", true},
      {"text_config", text},
      {"vision_config", Json{{"model_type", "qwen3_5"}, {"depth", 24}, {"out_hidden_size", 2560}}}};
}

TEST(StateFamilies, Qwen3_5WithPicturesTurnsByThreeAxes) {
  const Json json = qwen3_5_with_tower();
  const ModelConfig c = parse(json);
  EXPECT_EQ(c.model_type, "qwen3_5");
  EXPECT_EQ(likely_naming(c).prefix, "model.language_model.");
  ASSERT_TRUE(c.vision);
  EXPECT_EQ(c.vision->depth, 24);
  EXPECT_TRUE(c.vision->deepstack_blocks.empty());
  ASSERT_EQ(c.ropes.size(), 1u);
  ASSERT_EQ(c.ropes[0].axes.size(), 32u);  // of a quarter of a head
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(c.ropes[0].axes[i], i % 3) << i;
  EXPECT_TRUE(parse(qwen3_5()).ropes[0].axes.empty());
}

TEST(StateFamilies, WhatQwen3_5WithPicturesCantMean) {
  const Json json = qwen3_5_with_tower();
  const Json text = json["text_config"];
  expect_refused(with(json, "text_config", with(text, "model_type", "qwen3_next")), "model_type",
                 "qwen3_5");
  Json other = json;
  other["text_config"]["rope_parameters"]["mrope_section"] = {24, 20, 20};
  EXPECT_THROW(parse(other), Error);
  other = json;
  other.erase("vision_config");
  EXPECT_THROW(parse(other), Error);
}

// Bytes of a sequence that others' logs have: 4B 50.3 MB and 2.4 MB of windows.
TEST(StateFamilies, WhatSequencesKeep) {
  const ModelConfig c = parse(qwen3_5());
  const ModelSources sources = list_sources(c, likely_naming(c), {});
  const CacheLayout layout = make_cache_layout(list_kept(sources), {});
  EXPECT_EQ(layout.groups.front().num_layers, 8);
  size_t matrices = 0, windows = 0;
  for (const StateRows& rows : layout.states) {
    matrices += rows.matrix_numbers();
    windows += rows.window_numbers();
  }
  EXPECT_EQ(matrices * 4, size_t{24} * 32 * 128 * 128 * 4);
  EXPECT_EQ(windows * 4, size_t{24} * 8192 * 3 * 4);
}

// Each feature and each input of the layers is one rank's.
TEST(StateFamilies, RanksShareHeadsAndChannels) {
  for (const Json& json :
       {lfm2(), qwen3_5(), qwen3_next(), with(granite(), "mamba_n_groups", 8), nemotron_3()}) {
    const ModelConfig c = parse(json);
    const ModelSources whole = list_sources(c, likely_naming(c), {});
    std::vector<int64_t> numbers(whole.layers[0].mixer->matrices().size());
    int64_t conv = 0;
    for (int32_t index = 0; index < 4; ++index) {
      ModelSources part = list_sources(c, likely_naming(c), {});
      share_sources({.index = index, .count = 4}, part);
      MixerSources& mixer = *part.layers[0].mixer;
      for (size_t i = 0; i < numbers.size(); ++i) numbers[i] += mixer.matrices()[i]->numbers();
      conv += mixer.vectors().front()->n();
      EXPECT_EQ(4 * mixer.state().numbers(), whole.layers[0].mixer->state().numbers());
    }
    for (size_t i = 0; i < numbers.size(); ++i) {
      EXPECT_EQ(numbers[i], whole.layers[0].mixer->matrices()[i]->numbers()) << i;
    }
    EXPECT_EQ(conv, whole.layers[0].mixer->vectors().front()->n());
  }
  const ModelConfig c = parse(with(qwen3_5(), "linear_num_key_heads", 2));
  ModelSources sources = list_sources(c, likely_naming(c), {});
  expect_error(ErrorCode::kUnsupported, {"tensor_parallel_size"},
               [&] { share_sources({.index = 0, .count = 4}, sources); });
}

TEST(StateFamilies, GatesAreNeverQuantized) {
  const ModelConfig c = parse(qwen3_5());
  const ModelSources sources = list_sources(c, likely_naming(c), {.bits = 4, .group_size = 32});
  const auto matrices = sources.layers[0].mixer->matrices();
  ASSERT_EQ(matrices.size(), 3u);
  EXPECT_EQ(matrices[0]->quant.bits, 4);
  EXPECT_EQ(matrices[1]->quant.bits, 0);
  EXPECT_EQ(matrices[2]->quant.bits, 4);
}

}  // namespace
}  // namespace headrace
