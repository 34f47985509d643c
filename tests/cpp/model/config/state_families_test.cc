// Configs of families whose layers keep a state, with the keys that published files have.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cpp/model/expect_error.h"
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

ModelConfig parse(const Json& json) { return parse_model_config(json.dump(), ""); }

Json with(Json json, const std::string& key, const Json& value) {
  json[key] = value;
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
  expect_refused(granite(), "mamba_proj_bias", true);
  expect_refused(granite(), "mamba_d_state", 4096);
  expect_refused(granite(), "position_embedding_type", "alibi");
  expect_refused(granite(), "layer_types", nullptr);
  ModelSources sources = list_sources(c, likely_naming(c), {});
  expect_error(ErrorCode::kUnsupported, {"tensor_parallel_size"},
               [&] { share_sources({.index = 0, .count = 2}, sources); });
}

TEST(StateFamilies, Qwen3_5) {
  const ModelConfig c = parse(qwen3_5());
  EXPECT_TRUE(c.state.has(30) && !c.state.has(31) && !c.state.has(3));
  EXPECT_EQ(c.ropes.front().rotary_dim, 64);
  EXPECT_TRUE(c.attention_gate && c.qk_norm);
  EXPECT_EQ(c.norm_offset, 1.0f);
  Json without = qwen3_5();
  without["rope_parameters"].erase("rope_theta");
  expect_error(ErrorCode::kCorruptFile, {"rope_theta"}, [&] { parse(without); });
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

TEST(StateFamilies, Qwen3_5WithPicturesIsItsTextModel) {
  Json text = qwen3_5();
  text.erase("architectures");
  const Json json{{"architectures", Json::array({"Qwen3_5ForConditionalGeneration"})},
                  {"model_type", "qwen3_5"},
                  {"image_token_id", 248056},
                  {"video_token_id", 248057},
                  {"vision_start_token_id", 248053},
                  {"vision_end_token_id", 248054},
                  {"tie_word_embeddings", true},
                  {"text_config", text},
                  {"vision_config", Json{{"model_type", "qwen3_5"}, {"depth", 24}}}};
  const ModelConfig c = parse(json);
  EXPECT_EQ(c.model_type, "qwen3_5_text");
  EXPECT_EQ(likely_naming(c).prefix, "model.language_model.");
  expect_refused(with(json, "text_config", with(text, "model_type", "qwen3_next")), "model_type",
                 "qwen3_5");
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
  for (const Json& json : {lfm2(), qwen3_5(), qwen3_next(), with(granite(), "mamba_n_groups", 8)}) {
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
