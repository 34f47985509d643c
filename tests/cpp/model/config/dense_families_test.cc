// Configs of families whose layers aren't Llama's, with the keys that published files have.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "cpp/model/expect_error.h"
#include "cpp/model/test_json.h"
#include "model/load/list_sources.h"
#include "model/load/load_config.h"

namespace headrace {
namespace {

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += (i > 0 ? "," : "") + text;
  return "[" + out + "]";
}

/// layer_types of three layers that slide and one that doesn't.
std::string three_to_one(int periods) {
  return repeated(R"("sliding_attention","sliding_attention","sliding_attention","full_attention")",
                  periods);
}

const std::map<std::string, std::string>& published() {
  static const std::map<std::string, std::string> kConfigs{
      {"gemma2", R"({"architectures":["Gemma2ForCausalLM"],"attention_bias":false,
        "attn_logit_softcapping":50.0,"bos_token_id":2,"cache_implementation":"hybrid",
        "eos_token_id":1,"final_logit_softcapping":30.0,"head_dim":256,
        "hidden_act":"gelu_pytorch_tanh","hidden_activation":"gelu_pytorch_tanh",
        "hidden_size":2304,"intermediate_size":9216,"max_position_embeddings":8192,
        "model_type":"gemma2","num_attention_heads":8,"num_hidden_layers":26,
        "num_key_value_heads":4,"query_pre_attn_scalar":256,"rms_norm_eps":1e-06,
        "rope_theta":10000.0,"sliding_window":4096,"vocab_size":256000})"},
      {"gemma3_text", R"({"architectures":["Gemma3ForCausalLM"],"attention_bias":false,
        "attn_logit_softcapping":null,"cache_implementation":"hybrid","eos_token_id":[1,106],
        "final_logit_softcapping":null,"head_dim":256,"hidden_activation":"gelu_pytorch_tanh",
        "hidden_size":1152,"intermediate_size":6912,"max_position_embeddings":32768,
        "model_type":"gemma3_text","num_attention_heads":4,"num_hidden_layers":26,
        "num_key_value_heads":1,"query_pre_attn_scalar":256,"rms_norm_eps":1e-06,
        "rope_local_base_freq":10000,"rope_scaling":null,"rope_theta":1000000,
        "sliding_window":512,"sliding_window_pattern":6,"vocab_size":262144})"},
      {"smollm3", R"({"architectures":["SmolLM3ForCausalLM"],"attention_bias":false,
        "hidden_act":"silu","hidden_size":2048,"intermediate_size":11008,"layer_types":)" +
                      repeated("\"full_attention\"", 36) + R"(,"max_position_embeddings":65536,
        "max_window_layers":28,"mlp_bias":false,"model_type":"smollm3",
        "no_rope_layer_interval":4,"no_rope_layers":)" +
                      repeated("1,1,1,0", 9) + R"(,"num_attention_heads":16,
        "num_hidden_layers":36,"num_key_value_heads":4,"pretraining_tp":2,"rms_norm_eps":1e-06,
        "rope_scaling":null,"rope_theta":5000000.0,"sliding_window":null,
        "use_sliding_window":false,"vocab_size":128256})"},
      {"olmo2", R"({"architectures":["Olmo2ForCausalLM"],"attention_bias":false,
        "hidden_act":"silu","hidden_size":4096,"intermediate_size":11008,
        "max_position_embeddings":4096,"model_type":"olmo2","num_attention_heads":32,
        "num_hidden_layers":32,"num_key_value_heads":8,"rms_norm_eps":1e-06,"rope_scaling":null,
        "rope_theta":500000,"tie_word_embeddings":false,"vocab_size":100352})"},
      {"olmo3", R"({"architectures":["Olmo3ForCausalLM"],"attention_bias":false,
        "hidden_act":"silu","hidden_size":4096,"intermediate_size":11008,"layer_types":)" +
                    three_to_one(8) + R"(,"max_position_embeddings":65536,"model_type":"olmo3",
        "num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":32,
        "rms_norm_eps":1e-06,"rope_scaling":{"attention_factor":1.2079441541679836,
        "beta_fast":32.0,"beta_slow":1.0,"factor":8.0,"original_max_position_embeddings":8192,
        "rope_type":"yarn"},"rope_theta":500000,"sliding_window":4096,"vocab_size":100278})"},
      {"phi3", R"({"architectures":["Phi3ForCausalLM"],"attention_bias":false,"embd_pdrop":0.0,
        "full_attn_mod":1,"hidden_act":"silu","hidden_size":3072,"intermediate_size":8192,
        "interpolate_factor":1,"lm_head_bias":false,"max_position_embeddings":131072,
        "mlp_bias":false,"model_type":"phi3","num_attention_heads":24,"num_hidden_layers":32,
        "num_key_value_heads":8,"original_max_position_embeddings":4096,
        "partial_rotary_factor":0.75,"resid_pdrop":0.0,"rms_norm_eps":1e-05,
        "rope_scaling":{"long_factor":)" +
                   repeated("1.5", 48) + R"(,"short_factor":)" + repeated("1.0", 48) +
                   R"(,"type":"longrope"},"rope_theta":10000.0,"sliding_window":262144,
        "tie_word_embeddings":true,"vocab_size":200064})"},
      {"granite", R"({"architectures":["GraniteForCausalLM"],"attention_bias":false,
        "attention_multiplier":0.0078125,"embedding_multiplier":12.0,"hidden_act":"silu",
        "hidden_size":4096,"intermediate_size":12800,"logits_scaling":16.0,
        "max_position_embeddings":131072,"mlp_bias":false,"model_type":"granite",
        "num_attention_heads":32,"num_hidden_layers":40,"num_key_value_heads":8,
        "residual_multiplier":0.22,"rms_norm_eps":1e-05,"rope_scaling":null,
        "rope_theta":10000000.0,"tie_word_embeddings":true,"vocab_size":49159})"},
      {"exaone4", R"({"architectures":["Exaone4ForCausalLM"],"head_dim":128,"hidden_act":"silu",
        "hidden_size":5120,"intermediate_size":27392,"max_position_embeddings":131072,
        "model_type":"exaone4","num_attention_heads":40,"num_hidden_layers":64,
        "num_key_value_heads":8,"rms_norm_eps":1e-05,"rope_scaling":{"factor":16.0,
        "high_freq_factor":4.0,"low_freq_factor":1.0,"original_max_position_embeddings":8192,
        "rope_type":"llama3"},"rope_theta":1000000,"sliding_window":4096,
        "sliding_window_pattern":"LLLG","tie_word_embeddings":false,"vocab_size":102400})"},
      {"glm4", R"({"architectures":["Glm4ForCausalLM"],"attention_bias":false,"head_dim":128,
        "hidden_act":"silu","hidden_size":4096,"intermediate_size":13696,
        "max_position_embeddings":32768,"model_type":"glm4","num_attention_heads":32,
        "num_hidden_layers":40,"num_key_value_heads":2,"partial_rotary_factor":0.5,
        "rms_norm_eps":1e-05,"rope_theta":10000.0,"tie_word_embeddings":false,
        "vocab_size":151552})"},
      {"seed_oss", R"({"architectures":["SeedOssForCausalLM"],"attention_bias":true,
        "attention_dropout":0.1,"attention_out_bias":false,"head_dim":128,"hidden_act":"silu",
        "hidden_size":5120,"intermediate_size":27648,"max_position_embeddings":524288,
        "mlp_bias":false,"model_type":"seed_oss","num_attention_heads":80,
        "num_hidden_layers":64,"num_key_value_heads":8,"residual_dropout":0.1,
        "rms_norm_eps":1e-06,"rope_scaling":{"rope_type":"default"},"rope_theta":10000000.0,
        "tie_word_embeddings":false,"vocab_size":155136})"},
      {"ministral3", R"({"architectures":["Ministral3ForCausalLM"],"head_dim":128,
        "hidden_act":"silu","hidden_size":3072,"intermediate_size":9216,
        "max_position_embeddings":262144,"model_type":"ministral3","num_attention_heads":32,
        "num_hidden_layers":26,"num_key_value_heads":8,"rms_norm_eps":1e-05,
        "rope_parameters":{"beta_fast":32.0,"beta_slow":1.0,"factor":16.0,
        "llama_4_scaling_beta":0.1,"mscale":1.0,"mscale_all_dim":1.0,
        "original_max_position_embeddings":16384,"rope_theta":1000000.0,"rope_type":"yarn",
        "type":"yarn"},"sliding_window":null,"tie_word_embeddings":true,"vocab_size":131072})"},
      {"cohere2", R"({"architectures":["Cohere2ForCausalLM"],"attention_bias":false,
        "cache_implementation":"hybrid","head_dim":128,"hidden_act":"silu","hidden_size":4096,
        "intermediate_size":14336,"layer_norm_eps":1e-05,"layer_switch":4,"logit_scale":0.25,
        "max_position_embeddings":132096,"model_type":"cohere2","num_attention_heads":32,
        "num_hidden_layers":32,"num_key_value_heads":8,
        "order_of_interleaved_layers":"local_attn_first","position_embedding_type":"rope_gptj",
        "rope_scaling":null,"rope_theta":50000,"rotary_pct":1.0,"sliding_window":4096,
        "sliding_window_pattern":4,"use_embedding_sharing":true,"use_gated_activation":true,
        "use_parallel_block":true,"use_parallel_embedding":true,"vocab_size":256000})"},
      {"hunyuan_v1_dense", R"({"architectures":["HunYuanDenseV1ForCausalLM"],
        "attention_bias":false,"attention_head_dim":128,"cla_share_factor":2,"head_dim":128,
        "hidden_act":"silu","hidden_size":4096,"intermediate_size":14336,
        "max_position_embeddings":32768,"mlp_bias":false,"model_type":"hunyuan_v1_dense",
        "norm_type":"rms","num_attention_heads":32,"num_experts":1,"num_hidden_layers":32,
        "num_key_value_heads":8,"rms_norm_eps":1e-05,"rope_scaling":{"alpha":1000.0,
        "beta_fast":32,"beta_slow":1,"factor":1.0,"mscale":1.0,"mscale_all_dim":1.0,
        "type":"dynamic"},"rope_theta":10000.0,"tie_word_embeddings":true,"use_cla":false,
        "use_qk_norm":true,"vocab_size":128167})"},
  };
  return kConfigs;
}

ModelConfig parse(const std::string& text) { return parse_model_config(text, ""); }

ModelConfig config_of(const std::string& family) { return parse(published().at(family)); }

/// The published config with one key set.
std::string changed(const std::string& family, const std::string& key, const std::string& value) {
  Json json = Json::parse(published().at(family));
  json[key] = Json::parse(value);
  return json.dump();
}

std::vector<int32_t> windows(const std::string& family, size_t count) {
  std::vector<int32_t> out = config_of(family).layer_window;
  out.resize(count);
  return out;
}

TEST(DenseFamilies, Gemma2) {
  const ModelConfig c = config_of("gemma2");
  EXPECT_EQ(windows("gemma2", 3), (std::vector<int32_t>{4096, 0, 4096}));
  EXPECT_EQ(c.norm_offset, 1.0f);
  EXPECT_FLOAT_EQ(c.embedding_scale, 48.0f);
  EXPECT_EQ(c.attention_scale, 0.0625f);
  EXPECT_EQ(c.attention_cap, 50.0f);
  EXPECT_EQ(c.logit_cap, 30.0f);
  EXPECT_EQ(c.gate.activation, Activation::kGeluTanh);
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_EQ(parse(changed("gemma2", "attn_logit_softcapping", "null")).attention_cap, 0.0f);
  expect_error(ErrorCode::kUnsupported, {"use_bidirectional_attention"},
               [] { parse(changed("gemma2", "use_bidirectional_attention", "true")); });
}

TEST(DenseFamilies, Gemma3) {
  const ModelConfig c = config_of("gemma3_text");
  EXPECT_EQ(windows("gemma3_text", 7), (std::vector<int32_t>{512, 512, 512, 512, 512, 0, 512}));
  ASSERT_EQ(c.ropes.size(), 2u);
  EXPECT_EQ(c.layer_rope[5], 0);
  EXPECT_EQ(c.layer_rope[6], 1);
  EXPECT_FLOAT_EQ(c.ropes[0].inv_freq[1], std::pow(1e6f, -2.0f / 256));
  EXPECT_FLOAT_EQ(c.ropes[1].inv_freq[1], std::pow(1e4f, -2.0f / 256));
  EXPECT_TRUE(c.qk_norm);
  EXPECT_EQ(c.logit_cap, 0.0f);
  std::string without = published().at("gemma3_text");
  without.erase(without.find("\"sliding_window\":512,"), 21);
  expect_error(ErrorCode::kCorruptFile, {"sliding_window"}, [&] { parse(without); });
  expect_error(ErrorCode::kUnsupported, {"attn_logit_softcapping"},
               [] { parse(changed("gemma3_text", "attn_logit_softcapping", "50.0")); });
}

TEST(DenseFamilies, SmolLm3) {
  EXPECT_EQ(config_of("smollm3").layer_rope[2], 0);
  EXPECT_EQ(config_of("smollm3").layer_rope[3], kNoRope);
  EXPECT_EQ(parse(changed("smollm3", "no_rope_layers", "null")).layer_rope[7], kNoRope);
  expect_error(ErrorCode::kCorruptFile, {"no_rope_layers"},
               [] { parse(changed("smollm3", "no_rope_layers", "[1,0]")); });
  expect_error(ErrorCode::kCorruptFile, {"no_rope_layers"},
               [] { parse(changed("smollm3", "no_rope_layers", repeated("2", 36))); });
}

TEST(DenseFamilies, NormsBehindBlocks) {
  for (const char* family : {"olmo2", "olmo3", "exaone4"}) {
    SCOPED_TRACE(family);
    const ModelSources sources = list_sources(config_of(family), {}, {});
    const LayerSources& layer = sources.layers.front();
    EXPECT_TRUE(layer.mixer_norm.empty());
    EXPECT_TRUE(layer.feed_forward_norm.empty());
    EXPECT_EQ(layer.mixer_post_norm.weight.parts[0].name,
              "model.layers.0.post_attention_layernorm.weight");
    EXPECT_EQ(layer.feed_forward_post_norm.weight.parts[0].name,
              "model.layers.0.post_feedforward_layernorm.weight");
  }
  EXPECT_EQ(config_of("olmo2").qk_norm_kind, QkNorm::kRow);
  const ModelConfig olmo3 = config_of("olmo3");
  EXPECT_EQ(windows("olmo3", 4), (std::vector<int32_t>{4096, 4096, 4096, 0}));
  EXPECT_FLOAT_EQ(olmo3.ropes[0].attention_factor, 1.2079441f);
  EXPECT_EQ(olmo3.ropes[1].attention_factor, 1.0f);
  EXPECT_EQ(olmo3.layer_rope[0], 1);
  const ModelConfig exaone = config_of("exaone4");
  EXPECT_EQ(windows("exaone4", 4), (std::vector<int32_t>{4096, 4096, 4096, 0}));
  EXPECT_EQ(exaone.layer_rope[3], kNoRope);
  const ModelConfig full = parse(changed("exaone4", "sliding_window", "null"));
  EXPECT_EQ(full.layer_window[0], 0);
  EXPECT_EQ(full.layer_rope[3], 0);
}

TEST(DenseFamilies, RowNormsCannotBeShared) {
  ModelSources sources = list_sources(config_of("olmo2"), {}, {});
  expect_error(ErrorCode::kUnsupported, {"tensor_parallel_size"},
               [&] { share_sources({.index = 0, .count = 2}, sources); });
}

TEST(DenseFamilies, Phi3) {
  const ModelConfig c = config_of("phi3");
  EXPECT_EQ(c.ropes[0].rotary_dim, 96);
  EXPECT_EQ(c.ropes[0].long_inv_freq.size(), 48u);
  EXPECT_EQ(c.ropes[0].dynamic_original_max, 4096);
  const ModelSources sources = list_sources(c, {}, {});
  EXPECT_EQ(sources.layers[1].matrices()[0]->parts[0].name,
            "model.layers.1.self_attn.qkv_proj.weight");
  EXPECT_EQ(sources.layers[1].matrices()[2]->parts[0].name,
            "model.layers.1.mlp.gate_up_proj.weight");
  EXPECT_TRUE(sources.head.empty());
}

TEST(DenseFamilies, Granite) {
  const ModelConfig c = config_of("granite");
  EXPECT_EQ(c.embedding_scale, 12.0f);
  EXPECT_EQ(c.residual_scale, 0.22f);
  EXPECT_EQ(c.attention_scale, 0.0078125f);
  EXPECT_EQ(c.logit_scale, 0.0625f);
  EXPECT_EQ(parse(R"({"model_type":"granite"})").attention_scale, 1.0f) << "as transformers has it";
}

TEST(DenseFamilies, Glm4) {
  const ModelConfig c = config_of("glm4");
  EXPECT_EQ(c.ropes[0].rotary_dim, 64);
  EXPECT_EQ(c.ropes[0].style, RopeStyle::kInterleaved);
  EXPECT_FALSE(c.qkv_bias);
  EXPECT_TRUE(parse(R"({"model_type":"glm4"})").qkv_bias);
  const ModelSources sources = list_sources(c, {}, {});
  const LayerSources& layer = sources.layers[0];
  EXPECT_EQ(layer.mixer_post_norm.weight.parts[0].name,
            "model.layers.0.post_self_attn_layernorm.weight");
  EXPECT_EQ(layer.feed_forward_norm.weight.parts[0].name,
            "model.layers.0.post_attention_layernorm.weight");
  EXPECT_EQ(layer.feed_forward_post_norm.weight.parts[0].name,
            "model.layers.0.post_mlp_layernorm.weight");
}

TEST(DenseFamilies, SeedOss) {
  const ModelConfig c = config_of("seed_oss");
  EXPECT_TRUE(c.qkv_bias);
  EXPECT_FALSE(c.o_bias || c.mlp_bias);
}

TEST(DenseFamilies, Ministral3) {
  const ModelConfig c = config_of("ministral3");
  EXPECT_EQ(c.q_factor.beta, 0.1f);
  EXPECT_EQ(c.q_factor.original, 16384);
  EXPECT_EQ(c.ropes[0].attention_factor, 1.0f);
  const ModelConfig usual = parse(R"({"model_type":"ministral3"})");
  EXPECT_EQ(usual.q_factor.original, 16384);
  EXPECT_EQ(usual.ropes[0].inv_freq, c.ropes[0].inv_freq);
}

TEST(DenseFamilies, Cohere2) {
  const ModelConfig c = config_of("cohere2");
  EXPECT_EQ(c.norm, (NormSpec{NormKind::kLayer, 1e-5f}));
  EXPECT_EQ(c.logit_scale, 0.25f);
  EXPECT_EQ(c.layer_rope[2], 0);
  EXPECT_EQ(c.layer_rope[3], kNoRope);
  EXPECT_EQ(c.ropes[0].style, RopeStyle::kInterleaved);
  const ModelSources sources = list_sources(c, {}, {});
  EXPECT_TRUE(sources.layers[0].parallel);
  EXPECT_TRUE(sources.layers[0].feed_forward_norm.empty());
  expect_error(ErrorCode::kUnsupported, {"use_parallel_block"},
               [] { parse(changed("cohere2", "use_parallel_block", "false")); });
}

TEST(DenseFamilies, Hunyuan) {
  const ModelConfig c = config_of("hunyuan_v1_dense");
  EXPECT_EQ(c.qk_norm_kind, QkNorm::kHeadAfterRope);
  EXPECT_EQ(c.ropes[0].dynamic_original_max, 0);
  EXPECT_FLOAT_EQ(c.ropes[0].inv_freq[1],
                  static_cast<float>(std::pow(1e4 * std::pow(1000.0, 128.0 / 126), -2.0 / 128)));
  expect_error(ErrorCode::kUnsupported, {"use_cla"},
               [] { parse(changed("hunyuan_v1_dense", "use_cla", "true")); });
}

}  // namespace
}  // namespace headrace
