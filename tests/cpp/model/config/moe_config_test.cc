// What the configs of families with experts mean.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cpp/model/expect_error.h"
#include "cpp/model/test_json.h"
#include "model/config/model_config.h"
#include "model/load/load_config.h"

namespace headrace {
namespace {

using Layers = std::vector<bool>;

/// A config with the keys that a published one of this family has, of four layers.
Json published(const std::string& model_type) {
  Json json = Json::parse(R"({"bos_token_id":1,"eos_token_id":2,"hidden_act":"silu",
      "num_hidden_layers":4,"torch_dtype":"bfloat16","use_cache":true})");
  json["model_type"] = model_type;
  const auto add = [&](const char* text) { json.update(Json::parse(text)); };
  if (model_type == "ernie4_5_moe") {
    add(R"({"architectures":["Ernie4_5_MoeForCausalLM"],"hidden_size":2560,
      "intermediate_size":12288,"max_position_embeddings":131072,"num_attention_heads":20,
      "num_key_value_heads":4,"pad_token_id":0,"rms_norm_eps":1e-05,"rope_scaling":null,
      "rope_theta":500000,"tie_word_embeddings":true,"use_bias":false,"vocab_size":103424,
      "moe_capacity":[64,64,64],"moe_gate":"topk","moe_intermediate_size":1536,"moe_k":6,
      "moe_layer_end_index":27,"moe_layer_interval":1,"moe_layer_start_index":1,
      "moe_num_experts":64,"moe_num_shared_experts":2,"moe_use_aux_free":true,
      "num_nextn_predict_layers":1})");
  } else if (model_type == "qwen3_moe") {
    add(R"({"architectures":["Qwen3MoeForCausalLM"],"attention_bias":false,
      "attention_dropout":0.0,"decoder_sparse_step":1,"head_dim":128,"hidden_size":2048,
      "initializer_range":0.02,"intermediate_size":5472,"max_position_embeddings":262144,
      "max_window_layers":28,"mlp_only_layers":[],"moe_intermediate_size":768,
      "norm_topk_prob":true,"num_attention_heads":32,"num_experts":128,"num_experts_per_tok":8,
      "num_key_value_heads":4,"output_router_logits":false,"qkv_bias":false,"rms_norm_eps":1e-06,
      "rope_scaling":null,"rope_theta":10000000,"router_aux_loss_coef":0.001,
      "shared_expert_intermediate_size":0,"sliding_window":null,"tie_word_embeddings":false,
      "use_qk_norm":true,"use_sliding_window":false,"vocab_size":151936})");
  } else if (model_type == "qwen2_moe") {
    add(R"({"architectures":["Qwen2MoeForCausalLM"],"attention_dropout":0.0,
      "decoder_sparse_step":1,"hidden_size":2048,"initializer_range":0.02,
      "intermediate_size":5632,"max_position_embeddings":8192,"max_window_layers":21,
      "moe_intermediate_size":1408,"norm_topk_prob":false,"num_attention_heads":16,
      "num_experts":60,"num_experts_per_tok":4,"num_key_value_heads":16,
      "output_router_logits":false,"rms_norm_eps":1e-06,"rope_theta":1000000.0,
      "router_aux_loss_coef":0.001,"shared_expert_intermediate_size":5632,
      "sliding_window":32768,"tie_word_embeddings":false,"use_sliding_window":false,
      "vocab_size":151936})");
  } else if (model_type == "gpt_oss") {
    add(R"({"architectures":["GptOssForCausalLM"],"attention_bias":true,"attention_dropout":0.0,
      "eos_token_id":200002,"experts_per_token":4,"head_dim":64,"hidden_size":2880,
      "initial_context_length":4096,"initializer_range":0.02,"intermediate_size":2880,
      "layer_types":["sliding_attention","full_attention","sliding_attention","full_attention"],
      "max_position_embeddings":131072,"num_attention_heads":64,"num_experts_per_tok":4,
      "num_key_value_heads":8,"num_local_experts":32,"output_router_logits":false,
      "pad_token_id":199999,"quantization_config":{"modules_to_not_convert":["lm_head",
      "model.layers.*.self_attn","model.layers.*.mlp.router","model.embed_tokens"],
      "quant_method":"mxfp4"},"rms_norm_eps":1e-05,"rope_scaling":{"beta_fast":32.0,
      "beta_slow":1.0,"factor":32.0,"original_max_position_embeddings":4096,"rope_type":"yarn",
      "truncate":false},"rope_theta":150000,"router_aux_loss_coef":0.9,"sliding_window":128,
      "swiglu_limit":7.0,"tie_word_embeddings":false,"vocab_size":201088})");
  } else if (model_type == "glm4_moe") {
    add(R"({"architectures":["Glm4MoeForCausalLM"],"attention_bias":true,"attention_dropout":0.0,
      "eos_token_id":[151329,151336,151338],"first_k_dense_replace":1,"head_dim":128,
      "hidden_size":4096,"initializer_range":0.02,"intermediate_size":10944,
      "max_position_embeddings":131072,"moe_intermediate_size":1408,"n_group":1,
      "n_routed_experts":128,"n_shared_experts":1,"norm_topk_prob":true,"num_attention_heads":96,
      "num_experts_per_tok":8,"num_key_value_heads":8,"num_nextn_predict_layers":1,
      "pad_token_id":151329,"partial_rotary_factor":0.5,"rms_norm_eps":1e-05,"rope_scaling":null,
      "rope_theta":1000000,"routed_scaling_factor":1.0,"tie_word_embeddings":false,"topk_group":1,
      "use_qk_norm":false,"vocab_size":151552})");
  } else {
    add(R"({"architectures":["MixtralForCausalLM"],"attention_dropout":0.0,"hidden_size":4096,
      "initializer_range":0.02,"intermediate_size":14336,"max_position_embeddings":32768,
      "num_attention_heads":32,"num_experts_per_tok":2,"num_key_value_heads":8,
      "num_local_experts":8,"output_router_logits":false,"rms_norm_eps":1e-05,
      "rope_theta":1000000.0,"router_aux_loss_coef":0.02,"sliding_window":null,
      "tie_word_embeddings":false,"vocab_size":32000})");
  }
  return json;
}

ModelConfig parse(const Json& json) { return parse_model_config(json.dump(), ""); }

Json changed(const std::string& model_type, const std::string& key, const Json& value) {
  Json json = published(model_type);
  json[key] = value;
  return json;
}

Json without(const std::string& model_type, const std::string& key) {
  Json json = published(model_type);
  json.erase(key);
  return json;
}

Layers sparse(const Json& json) { return parse(json).moe.sparse_layers; }

TEST(MoeConfig, Ernie) {
  const ModelConfig c = parse(published("ernie4_5_moe"));
  const RouterSpec& router = c.moe.router;
  EXPECT_EQ(router.score, RouterSpec::Score::kSoftmax);
  EXPECT_EQ(router.num_experts, 64);
  EXPECT_EQ(router.top_k, 6);
  EXPECT_TRUE(router.normalize);
  EXPECT_FLOAT_EQ(router.norm_min, 1e-12f);
  EXPECT_EQ(router.norm_eps, 0.0f);
  EXPECT_EQ(router.scale, 1.0f);
  EXPECT_EQ(c.moe.expert_width, 1536);
  EXPECT_EQ(c.moe.shared_width, 3072);
  EXPECT_FALSE(c.moe.shared_gate);
  EXPECT_TRUE(c.moe.has_correction);
  EXPECT_EQ(c.moe.sparse_layers, (Layers{false, true, true, true}));
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_EQ(c.ropes[0].style, RopeStyle::kInterleaved);
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_EQ(parse(changed("ernie4_5_moe", "moe_num_shared_experts", 0)).moe.shared_width, 0);
  EXPECT_FLOAT_EQ(parse(changed("ernie4_5_moe", "moe_norm_min", 0.5)).moe.router.norm_min, 0.5f);
  EXPECT_FALSE(parse(changed("ernie4_5_moe", "moe_use_aux_free", false)).moe.has_correction);
  EXPECT_TRUE(parse(without("ernie4_5_moe", "moe_use_aux_free")).moe.has_correction);
}

TEST(MoeConfig, ErniePaddleSaysDtypeAlone) {
  Json json = without("ernie4_5_moe", "torch_dtype");
  json["dtype"] = "bfloat16";
  json["fuse_rms_norm"] = true;
  EXPECT_EQ(parse(json).layout, CheckpointLayout::kPaddle);
}

TEST(MoeConfig, ErnieLayersFromStartToEnd) {
  Json json = published("ernie4_5_moe");
  json["moe_layer_end_index"] = 2;
  EXPECT_EQ(sparse(json), (Layers{false, true, true, false}));
  for (const Json& last : {Json(-1), Json(nullptr), Json(3), Json(29)}) {
    json["moe_layer_end_index"] = last;
    EXPECT_EQ(sparse(json), (Layers{false, true, true, true})) << last;
  }
  json["moe_layer_start_index"] = 0;
  EXPECT_EQ(sparse(json), (Layers{true, true, true, true}));
  json["moe_layer_interval"] = 2;
  EXPECT_EQ(sparse(json), (Layers{false, true, false, true}));
  json["moe_layer_interval"] = 3;
  EXPECT_EQ(sparse(json), (Layers{false, false, true, false}));
  json["moe_layer_start_index"] = 3;
  EXPECT_EQ(sparse(json), Layers(4, false));
}

TEST(MoeConfig, Qwen3) {
  const ModelConfig c = parse(published("qwen3_moe"));
  EXPECT_EQ(c.moe.router.num_experts, 128);
  EXPECT_EQ(c.moe.router.top_k, 8);
  EXPECT_TRUE(c.moe.router.normalize);
  EXPECT_EQ(c.moe.router.norm_min, 0.0f);
  EXPECT_EQ(c.moe.expert_width, 768);
  EXPECT_EQ(c.moe.shared_width, 0);
  EXPECT_FALSE(c.moe.shared_gate || c.moe.has_correction);
  EXPECT_EQ(c.moe.sparse_layers, Layers(4, true));
  EXPECT_TRUE(c.qk_norm);
  EXPECT_FALSE(c.qkv_bias);
  EXPECT_EQ(c.ropes[0].style, RopeStyle::kNeox);
  EXPECT_EQ(parse(without("qwen3_moe", "head_dim")).head_dim, 64);  // unlike qwen3's 128
  EXPECT_TRUE(parse(changed("qwen3_moe", "attention_bias", true)).o_bias);
  EXPECT_FALSE(parse(without("qwen3_moe", "norm_topk_prob")).moe.router.normalize);
}

TEST(MoeConfig, Qwen3SlidesInAllLayers) {
  Json json = published("qwen3_moe");
  json["sliding_window"] = 100;
  EXPECT_EQ(parse(json).layer_window, std::vector<int32_t>(4, 0));
  json["use_sliding_window"] = true;
  EXPECT_EQ(parse(json).layer_window, std::vector<int32_t>(4, 100));
  json.erase("sliding_window");
  EXPECT_EQ(parse(json).layer_window, std::vector<int32_t>(4, 4096));
  json["sliding_window"] = nullptr;
  EXPECT_EQ(parse(json).layer_window, std::vector<int32_t>(4, 0));
}

TEST(MoeConfig, QwenDenseLayers) {
  for (const std::string type : {"qwen2_moe", "qwen3_moe"}) {
    Json json = published(type);
    json["mlp_only_layers"] = {2, 0};
    EXPECT_EQ(sparse(json), (Layers{false, true, false, true}));
    json["decoder_sparse_step"] = 2;
    EXPECT_EQ(sparse(json), (Layers{false, true, false, true}));
    json["mlp_only_layers"] = {3};
    EXPECT_EQ(sparse(json), (Layers{false, true, false, false}));
    json["mlp_only_layers"] = nullptr;
    json["decoder_sparse_step"] = 3;
    EXPECT_EQ(sparse(json), (Layers{false, false, true, false}));
  }
}

TEST(MoeConfig, Qwen2) {
  const ModelConfig c = parse(published("qwen2_moe"));
  EXPECT_EQ(c.moe.router.num_experts, 60);
  EXPECT_EQ(c.moe.router.top_k, 4);
  EXPECT_FALSE(c.moe.router.normalize);
  EXPECT_EQ(c.moe.expert_width, 1408);
  EXPECT_EQ(c.moe.shared_width, 5632);
  EXPECT_TRUE(c.moe.shared_gate);
  EXPECT_TRUE(c.qkv_bias);
  EXPECT_FALSE(c.o_bias || c.qk_norm || c.moe.has_correction);
  EXPECT_FALSE(parse(changed("qwen2_moe", "qkv_bias", false)).qkv_bias);
  EXPECT_TRUE(parse(changed("qwen2_moe", "norm_topk_prob", true)).moe.router.normalize);
  // As transformers saves a model without a window.
  Json saved = changed("qwen2_moe", "sliding_window", 0);
  saved["layer_types"] = std::vector<std::string>(4, "full_attention");
  EXPECT_EQ(parse(saved).layer_window, std::vector<int32_t>(4, 0));
}

TEST(MoeConfig, Mixtral) {
  const ModelConfig c = parse(published("mixtral"));
  EXPECT_EQ(c.moe.router.num_experts, 8);
  EXPECT_EQ(c.moe.router.top_k, 2);
  EXPECT_TRUE(c.moe.router.normalize);
  EXPECT_EQ(c.moe.expert_width, 14336);
  EXPECT_EQ(c.moe.shared_width, 0);
  EXPECT_EQ(c.moe.sparse_layers, Layers(4, true));
  EXPECT_EQ(c.layer_window, std::vector<int32_t>(4, 0));
  EXPECT_EQ(parse(changed("mixtral", "sliding_window", 64)).layer_window,
            std::vector<int32_t>(4, 64));
  EXPECT_EQ(parse(changed("mixtral", "router_jitter_noise", 0.1)).moe.router.num_experts, 8);
}

TEST(MoeConfig, GptOss) {
  const ModelConfig c = parse(published("gpt_oss"));
  const RouterSpec& router = c.moe.router;
  EXPECT_EQ(router.score, RouterSpec::Score::kSoftmaxAfterTopK);
  EXPECT_EQ(router.num_experts, 32);
  EXPECT_EQ(router.top_k, 4);
  EXPECT_FALSE(router.normalize);
  EXPECT_EQ(c.moe.expert_width, 2880);
  EXPECT_EQ(c.moe.sparse_layers, Layers(4, true));
  EXPECT_EQ(c.gate.activation, Activation::kSilu);
  EXPECT_EQ(c.gate.limit, 7.0f);
  EXPECT_FLOAT_EQ(c.gate.alpha, 1.702f);
  EXPECT_EQ(parse(changed("gpt_oss", "swiglu_alpha", 1.5)).gate.alpha, 1.5f);
  EXPECT_EQ(c.layer_window, (std::vector<int32_t>{128, 0, 128, 0}));
  EXPECT_EQ(parse(without("gpt_oss", "layer_types")).layer_window, c.layer_window);
  EXPECT_EQ(parse(changed("gpt_oss", "sliding_window", nullptr)).layer_window,
            std::vector<int32_t>(4, 0));
  EXPECT_TRUE(c.qkv_bias && c.o_bias);
  EXPECT_FALSE(parse(changed("gpt_oss", "attention_bias", false)).o_bias);
  EXPECT_EQ(c.stored_quantization.method, StoredMethod::kMxfp4Blocks);
  EXPECT_FLOAT_EQ(c.ropes[0].attention_factor, 1.3465736f);
  EXPECT_EQ(parse(without("gpt_oss", "rope_scaling")).ropes[0].inv_freq, c.ropes[0].inv_freq);
  Json truncated = published("gpt_oss");
  truncated["rope_scaling"]["truncate"] = true;
  EXPECT_NE(parse(truncated).ropes[0].inv_freq, c.ropes[0].inv_freq);
}

TEST(MoeConfig, Defaults) {
  const auto bare = [](const char* type) { return parse(Json{{"model_type", type}}); };
  const ModelConfig ernie = bare("ernie4_5_moe");
  EXPECT_EQ(ernie.num_layers, 28);
  EXPECT_EQ(ernie.head_dim, 128);
  EXPECT_EQ(ernie.moe.shared_width, 3072);
  EXPECT_EQ(ernie.moe.router.top_k, 6);
  EXPECT_FALSE(ernie.moe.sparse_layers[0]);
  EXPECT_TRUE(ernie.moe.sparse_layers[27]);
  const ModelConfig qwen3 = bare("qwen3_moe");
  EXPECT_EQ(qwen3.head_dim, 64);
  EXPECT_EQ(qwen3.moe.router.num_experts, 128);
  EXPECT_FALSE(qwen3.moe.router.normalize);
  const ModelConfig qwen2 = bare("qwen2_moe");
  EXPECT_EQ(qwen2.num_kv_heads, 16);
  EXPECT_EQ(qwen2.moe.router.num_experts, 60);
  const ModelConfig mixtral = bare("mixtral");
  EXPECT_EQ(mixtral.num_kv_heads, 8);
  EXPECT_FLOAT_EQ(mixtral.norm.eps, 1e-5f);
  EXPECT_FLOAT_EQ(mixtral.ropes[0].inv_freq[1], std::pow(1e6f, -2.0f / 128));
  EXPECT_EQ(mixtral.moe.expert_width, 14336);
  const ModelConfig gpt_oss = bare("gpt_oss");
  EXPECT_EQ(gpt_oss.num_layers, 36);
  EXPECT_EQ(gpt_oss.head_dim, 64);
  EXPECT_EQ(gpt_oss.moe.router.num_experts, 128);
  EXPECT_EQ(gpt_oss.layer_window[34], 128);
  EXPECT_EQ(gpt_oss.gate.limit, 7.0f);
  EXPECT_TRUE(gpt_oss.o_bias);
  EXPECT_EQ(gpt_oss.ropes[0].inv_freq, parse(published("gpt_oss")).ropes[0].inv_freq);
}

TEST(MoeConfig, Glm) {
  const ModelConfig c = parse(published("glm4_moe"));
  const RouterSpec& router = c.moe.router;
  EXPECT_EQ(router.score, RouterSpec::Score::kSigmoid);
  EXPECT_EQ(router.num_experts, 128);
  EXPECT_EQ(router.top_k, 8);
  EXPECT_EQ(router.num_groups, 1);
  EXPECT_TRUE(router.normalize);
  EXPECT_FLOAT_EQ(router.norm_eps, 1e-20f);
  EXPECT_EQ(c.moe.sparse_layers, (Layers{false, true, true, true}));
  EXPECT_EQ(c.moe.expert_width, 1408);
  EXPECT_EQ(c.moe.shared_width, 1408);
  EXPECT_FALSE(c.moe.shared_gate);
  EXPECT_TRUE(c.moe.has_correction);
  EXPECT_TRUE(c.qkv_bias);
  EXPECT_FALSE(c.o_bias || c.qk_norm);
  EXPECT_EQ(c.ropes[0].style, RopeStyle::kNeox);
  EXPECT_EQ(c.ropes[0].rotary_dim, 64);
  // As the larger one has them, and routers with groups.
  Json json = published("glm4_moe");
  json.update(Json{{"first_k_dense_replace", 9},
                   {"n_group", 8},
                   {"n_shared_experts", 2},
                   {"routed_scaling_factor", 2.5},
                   {"topk_group", 3},
                   {"use_qk_norm", true}});
  const ModelConfig large = parse(json);
  EXPECT_EQ(large.moe.sparse_layers, Layers(4, false));
  EXPECT_EQ(large.moe.router.num_groups, 8);
  EXPECT_EQ(large.moe.router.top_groups, 3);
  EXPECT_EQ(large.moe.router.scale, 2.5f);
  EXPECT_EQ(large.moe.shared_width, 2816);
  EXPECT_TRUE(large.qk_norm);
  EXPECT_EQ(parse(changed("glm4_moe", "n_shared_experts", 0)).moe.shared_width, 0);
  EXPECT_EQ(parse(without("glm4_moe", "partial_rotary_factor")).ropes[0].rotary_dim, 64);
  EXPECT_EQ(mtp_tensors(c).first_layer, 4);
  EXPECT_EQ(mtp_tensors(parse(published("qwen3_moe"))).first_layer, MtpTensors::kNowhere);
}

struct Alias {
  const char *model_type, *key, *alias;
  int32_t value;
};

// transformers saves some keys under other names than published files have.
TEST(MoeConfig, AliasesMustAgree) {
  for (const Alias& a : {Alias{"ernie4_5_moe", "moe_num_experts", "num_experts", 24},
                         Alias{"ernie4_5_moe", "moe_k", "num_experts_per_tok", 3},
                         Alias{"qwen3_moe", "num_experts", "num_local_experts", 24},
                         Alias{"mixtral", "num_local_experts", "num_experts", 24},
                         Alias{"glm4_moe", "n_routed_experts", "num_local_experts", 24},
                         Alias{"gpt_oss", "num_experts_per_tok", "experts_per_token", 3}}) {
    Json json = published(a.model_type);
    const Json own = json[a.key];
    json[a.alias] = own;
    EXPECT_NO_THROW(parse(json)) << a.alias;
    json[a.alias] = a.value;
    expect_error(ErrorCode::kCorruptFile, {a.key, a.alias, own.dump()}, [&] { parse(json); });
    json.erase(a.key);
    const RouterSpec router = parse(json).moe.router;
    EXPECT_TRUE(router.num_experts == a.value || router.top_k == a.value) << a.alias;
  }
}

struct BadKey {
  const char* what;
  const char* model_type;
  const char* key;
  Json value;
  ErrorCode code;
};

class BadMoeConfig : public testing::TestWithParam<BadKey> {};

TEST_P(BadMoeConfig, NamesTheKey) {
  const BadKey& bad = GetParam();
  expect_error(bad.code, {"config.json", bad.key},
               [&] { parse(changed(bad.model_type, bad.key, bad.value)); });
}

std::vector<BadKey> bad_ernie_keys() {
  const auto corrupt = ErrorCode::kCorruptFile, unsupported = ErrorCode::kUnsupported;
  const char* type = "ernie4_5_moe";
  return {
      {"NoExperts", type, "moe_num_experts", 0, corrupt},
      {"TooManyExperts", type, "moe_num_experts", 1025, corrupt},
      {"TwoGroups", type, "moe_num_experts", Json::array({64, 64}), corrupt},
      {"NullExperts", type, "moe_num_experts", nullptr, corrupt},
      {"NoneTaken", type, "moe_k", 0, corrupt},
      {"MoreTakenThanThere", type, "moe_k", 64 + 1, corrupt},
      {"HugeWidth", type, "moe_intermediate_size", (1 << 22) + 1, corrupt},
      {"NoWidth", type, "moe_intermediate_size", 0, corrupt},
      {"TwoWidths", type, "moe_intermediate_size", Json::array({1536, 512}), corrupt},
      {"NegativeShared", type, "moe_num_shared_experts", -1, corrupt},
      {"ManyShared", type, "moe_num_shared_experts", 1025, corrupt},
      {"NoInterval", type, "moe_layer_interval", 0, corrupt},
      {"NegativeStart", type, "moe_layer_start_index", -1, corrupt},
      {"HugeStart", type, "moe_layer_start_index", uint64_t{1} << 40, corrupt},
      {"EndBelowMinusOne", type, "moe_layer_end_index", -2, corrupt},
      {"EndText", type, "moe_layer_end_index", "last", corrupt},
      {"NegativeNormMin", type, "moe_norm_min", -1.0, corrupt},
      {"HugeNormMin", type, "moe_norm_min", 1e30, corrupt},
      {"AuxFreeNumber", type, "moe_use_aux_free", 1, corrupt},
      {"Bias", type, "use_bias", true, unsupported},
      {"SigmoidGate", type, "moe_gate_act", "sigmoid", unsupported},
      {"SigmoidScores", type, "scoring_func", "sigmoid", unsupported},
      {"NoNorm", type, "moe_norm_gate_logits", false, unsupported},
      {"OtherGate", type, "moe_gate", "sinkhorn", unsupported},
      {"GroupExperts", type, "moe_group_experts", true, unsupported},
      {"GateScale", type, "moe_gate_scale", true, unsupported},
      {"RopeReorder", type, "rope_reorder", true, unsupported},
      {"TailLayer", type, "remove_tail_layer", 2, unsupported},
      {"LayerNorm", type, "use_rmsnorm", false, unsupported},
  };
}

std::vector<BadKey> bad_other_keys() {
  const auto corrupt = ErrorCode::kCorruptFile, unsupported = ErrorCode::kUnsupported;
  return {
      {"Qwen3NoExperts", "qwen3_moe", "num_experts", 0, corrupt},
      {"Qwen3MoreTaken", "qwen3_moe", "num_experts_per_tok", 129, corrupt},
      {"Qwen3TooManyTaken", "qwen3_moe", "num_experts_per_tok", 65, corrupt},
      {"Qwen3NoStep", "qwen3_moe", "decoder_sparse_step", 0, corrupt},
      {"Qwen3LayerBehind", "qwen3_moe", "mlp_only_layers", Json::array({4}), corrupt},
      {"Qwen3LayerNegative", "qwen3_moe", "mlp_only_layers", Json::array({-1}), corrupt},
      {"Qwen3LayerText", "qwen3_moe", "mlp_only_layers", "0", corrupt},
      {"Qwen3NormNumber", "qwen3_moe", "norm_topk_prob", 1, corrupt},
      {"Qwen3HugeWidth", "qwen3_moe", "moe_intermediate_size", 1 << 23, corrupt},
      {"Qwen3Shared", "qwen3_moe", "shared_expert_intermediate_size", 768, unsupported},
      {"Qwen3NoHeadNorm", "qwen3_moe", "use_qk_norm", false, unsupported},
      {"Qwen3LayerTypes", "qwen3_moe", "layer_types",
       Json(std::vector<std::string>(4, "sliding_attention")), unsupported},
      {"Qwen2MoreTaken", "qwen2_moe", "num_experts_per_tok", 61, corrupt},
      {"Qwen2NoShared", "qwen2_moe", "shared_expert_intermediate_size", 0, corrupt},
      {"Qwen2Window", "qwen2_moe", "use_sliding_window", true, unsupported},
      {"Qwen2LocalExperts", "qwen2_moe", "num_local_experts", 60, unsupported},
      {"MixtralMoreTaken", "mixtral", "num_experts_per_tok", 9, corrupt},
      {"MixtralWindow", "mixtral", "sliding_window", 0, corrupt},
      {"MixtralWidth", "mixtral", "intermediate_size", 1 << 23, corrupt},
      {"MixtralScore", "mixtral", "scoring_func", "sigmoid", unsupported},
      {"GptOssBiasText", "gpt_oss", "attention_bias", "yes", corrupt},
      {"GptOssActivation", "gpt_oss", "hidden_act", "gelu", unsupported},
      {"GptOssNoLimit", "gpt_oss", "swiglu_limit", 0, corrupt},
      {"GptOssSlope", "gpt_oss", "swiglu_alpha", -1.0, corrupt},
      {"GptOssWindow", "gpt_oss", "sliding_window", 0, corrupt},
      {"GptOssLayerTypes", "gpt_oss", "layer_types",
       Json(std::vector<std::string>(4, "chunked_attention")), unsupported},
      {"GptOssScore", "gpt_oss", "scoring_func", "sigmoid", unsupported},
      {"GlmGroupsDivide", "glm4_moe", "n_group", 3, corrupt},
      {"GlmManyGroups", "glm4_moe", "n_group", 129, corrupt},
      {"GlmMoreGroupsTaken", "glm4_moe", "topk_group", 2, corrupt},
      {"GlmNegativeDense", "glm4_moe", "first_k_dense_replace", -1, corrupt},
      {"GlmShared", "glm4_moe", "n_shared_experts", 1025, corrupt},
      {"GlmScale", "glm4_moe", "routed_scaling_factor", 0.0, corrupt},
      {"GlmScore", "glm4_moe", "scoring_func", "softmax", unsupported},
      {"GlmChoice", "glm4_moe", "topk_method", "greedy", unsupported},
      {"GlmInterval", "glm4_moe", "moe_layer_freq", 2, unsupported},
  };
}

std::string name_of(const testing::TestParamInfo<BadKey>& test) { return test.param.what; }

INSTANTIATE_TEST_SUITE_P(Ernie, BadMoeConfig, testing::ValuesIn(bad_ernie_keys()), name_of);
INSTANTIATE_TEST_SUITE_P(Others, BadMoeConfig, testing::ValuesIn(bad_other_keys()), name_of);

TEST(MoeConfig, GroupsMustHoldEnoughExperts) {
  Json json = published("glm4_moe");
  json.update(Json{{"n_group", 64}, {"topk_group", 3}});
  expect_error(ErrorCode::kCorruptFile, {"topk_group", "8", "6"}, [&] { parse(json); });
  json["topk_group"] = 4;
  EXPECT_NO_THROW(parse(json));
}

TEST(MoeConfig, SharedExpertsTogetherAreBounded) {
  Json json = changed("ernie4_5_moe", "moe_intermediate_size", 1 << 22);
  json["moe_num_shared_experts"] = 1;
  EXPECT_EQ(parse(json).moe.shared_width, 1 << 22);
  json["moe_num_shared_experts"] = 1024;  // 2^32 columns
  expect_error(ErrorCode::kCorruptFile, {"moe_num_shared_experts", "1024", "4294967296"},
               [&] { parse(json); });
}

}  // namespace
}  // namespace headrace
