// Gemma 4's configs, with the keys that published files have, and what must not be in them.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cpp/model/expect_error.h"
#include "cpp/model/test_json.h"
#include "model/load/list_sources.h"
#include "model/load/load_config.h"

namespace headrace {
namespace {

/// Of each `period` layers the last is full.
Json layer_types(size_t count, size_t period) {
  std::vector<std::string> out(count, "sliding_attention");
  for (size_t i = period - 1; i < count; i += period) out[i] = "full_attention";
  return out;
}

/// The text model of E2B.
Json e2b() {
  Json out = Json::parse(R"({"architectures":["Gemma4ForCausalLM"],"attention_bias":false,
      "attention_dropout":0.0,"attention_k_eq_v":false,"bos_token_id":2,"dtype":"bfloat16",
      "enable_moe_block":false,"eos_token_id":1,"final_logit_softcapping":30.0,
      "global_head_dim":512,"head_dim":256,"hidden_activation":"gelu_pytorch_tanh",
      "hidden_size":1536,"hidden_size_per_layer_input":256,"initializer_range":0.02,
      "intermediate_size":6144,"max_position_embeddings":131072,"model_type":"gemma4_text",
      "moe_intermediate_size":null,"num_attention_heads":8,"num_experts":null,
      "num_global_key_value_heads":null,"num_hidden_layers":35,"num_key_value_heads":1,
      "num_kv_shared_layers":20,"pad_token_id":0,"rms_norm_eps":1e-06,"rope_parameters":{
      "full_attention":{"partial_rotary_factor":0.25,"rope_theta":1000000.0,
      "rope_type":"proportional"},"sliding_attention":{"rope_theta":10000.0,
      "rope_type":"default"}},"sliding_window":512,"tie_word_embeddings":true,
      "top_k_experts":null,"use_bidirectional_attention":null,"use_cache":true,
      "use_double_wide_mlp":true,"vocab_size":262144,"vocab_size_per_layer_input":262144})");
  out["layer_types"] = layer_types(35, 5);
  return out;
}

/// That of the 31B.
Json large() {
  Json out = e2b();
  out.update(Json::parse(R"({"attention_k_eq_v":true,"hidden_size":5376,
      "hidden_size_per_layer_input":0,"intermediate_size":21504,"max_position_embeddings":262144,
      "num_attention_heads":32,"num_global_key_value_heads":4,"num_hidden_layers":60,
      "num_key_value_heads":16,"num_kv_shared_layers":0,"sliding_window":1024,
      "use_bidirectional_attention":"vision","use_double_wide_mlp":false})"));
  out["layer_types"] = layer_types(60, 6);
  return out;
}

/// The same as transformers 5 saves it.
Json large_v5() {
  Json out = large();
  out.erase("global_head_dim");
  out.erase("num_global_key_value_heads");
  for (int layer = 5; layer < 60; layer += 6) {
    out["per_layer_config"][std::to_string(layer)] =
        Json{{"head_dim", 512}, {"num_key_value_heads", 4}};
  }
  return out;
}

/// A model that sees, around a text model.
Json wrapped(Json text) {
  text.erase("architectures");
  return {{"architectures", {"Gemma4ForConditionalGeneration"}},
          {"audio_config", nullptr},
          {"image_token_id", 258880},
          {"model_type", "gemma4"},
          {"text_config", text},
          {"vision_config", {{"model_type", "gemma4_vision"}}}};
}

ModelConfig parse_json(const Json& json) { return parse_model_config(json.dump(), ""); }

Json with(Json json, const std::string& key, const Json& value) {
  json[key] = value;
  return json;
}

void expect_refused(const Json& json, const std::string& key, const Json& value, ErrorCode code) {
  expect_error(code, {key}, [&] { parse_json(with(json, key, value)); });
}

void expect_heads(const LayerHeads& got, const LayerHeads& want) {
  EXPECT_EQ(got.num_kv_heads, want.num_kv_heads);
  EXPECT_EQ(got.head_dim, want.head_dim);
  EXPECT_EQ(got.values_are_keys, want.values_are_keys);
  EXPECT_EQ(got.reads, want.reads);
}

void expect_large(const ModelConfig& c) {
  expect_heads(c.heads_of(0), {.num_kv_heads = 16, .head_dim = 256});
  expect_heads(c.heads_of(59), {.num_kv_heads = 4, .head_dim = 512, .values_are_keys = true});
  EXPECT_EQ(c.layer_window[58], 1024);
  EXPECT_EQ(c.layer_window[59], 0);
  EXPECT_EQ(c.per_layer_input, 0);
  ASSERT_EQ(c.ropes.size(), 2u);
  EXPECT_EQ(c.ropes[0].rotary_dim, 512);
  EXPECT_EQ(c.ropes[1].rotary_dim, 256);
}

TEST(Gemma4Config, OfSmallModels) {
  const ModelConfig c = parse_json(e2b());
  EXPECT_TRUE(c.qk_norm && c.v_norm && c.layer_scalars && c.tie_word_embeddings);
  EXPECT_EQ(c.norm_offset, 0.0f);
  EXPECT_EQ(c.attention_scale, 1.0f);
  EXPECT_EQ(c.logit_cap, 30.0f);
  EXPECT_FLOAT_EQ(c.embedding_scale, std::sqrt(1536.0f));
  EXPECT_EQ(c.gate.activation, Activation::kGeluTanh);
  EXPECT_EQ(c.per_layer_input, 256);
  EXPECT_EQ(c.per_layer_vocab, 262144);
  expect_heads(c.heads_of(13), {.num_kv_heads = 1, .head_dim = 256});
  expect_heads(c.heads_of(14), {.num_kv_heads = 1, .head_dim = 512});
  expect_heads(c.heads_of(15), {.num_kv_heads = 1, .head_dim = 256, .reads = 13});
  expect_heads(c.heads_of(34), {.num_kv_heads = 1, .head_dim = 512, .reads = 14});
  EXPECT_EQ(c.layer_mlp[14], 6144);
  EXPECT_EQ(c.layer_mlp[15], 12288);
  EXPECT_EQ(parse_json(with(e2b(), "use_double_wide_mlp", false)).layer_mlp[15], 6144);
}

TEST(Gemma4Config, OfLargeModels) {
  expect_large(parse_json(large()));
  expect_large(parse_json(large_v5()));
  const ModelConfig own = parse_json(with(large(), "attention_k_eq_v", false));
  expect_heads(own.heads_of(59), {.num_kv_heads = 16, .head_dim = 512});
}

TEST(Gemma4Config, RopesTurnAQuarterOfFullHeads) {
  for (const Json& json : {e2b(), with(e2b(), "rope_parameters", nullptr)}) {
    const ModelConfig c = parse_json(json);
    ASSERT_EQ(c.ropes.size(), 2u);
    const std::vector<float>& full = c.ropes[0].inv_freq;
    ASSERT_EQ(full.size(), 256u);
    EXPECT_FLOAT_EQ(full[63], std::pow(1e6f, -126.0f / 512));
    EXPECT_EQ(full[64], 0.0f);
    EXPECT_EQ(full[255], 0.0f);
    ASSERT_EQ(c.ropes[1].inv_freq.size(), 128u);
    EXPECT_FLOAT_EQ(c.ropes[1].inv_freq[127], std::pow(1e4f, -254.0f / 256));
    EXPECT_EQ(c.layer_rope[3], 1);
    EXPECT_EQ(c.layer_rope[4], 0);
  }
}

TEST(Gemma4Config, TheLastLayerIsFull) {
  const ModelConfig c = parse_json(with(large(), "layer_types", layer_types(60, 7)));
  EXPECT_EQ(c.layer_window[58], 1024);
  EXPECT_EQ(c.layer_window[59], 0);
  EXPECT_EQ(c.layer_rope[59], 0);
  EXPECT_EQ(c.heads_of(59).head_dim, 512);
}

TEST(Gemma4Config, PublishedModelsHaveTheirSizes) {
  const ModelConfig small = parse_json(wrapped(e2b()));
  const ModelSources sources = list_sources(small, likely_naming(small), {});
  EXPECT_NEAR(static_cast<double>(sources.num_parameters()) / 1e9, 4.63, 0.01);
  EXPECT_NEAR(static_cast<double>(sources.active_parameters()) / 1e9, 2.28, 0.01);
  const ModelConfig c = parse_json(large());
  const ModelSources of_large = list_sources(c, likely_naming(c), {});
  EXPECT_NEAR(static_cast<double>(of_large.num_parameters()) / 1e9, 30.7, 0.2);
}

TEST(Gemma4Config, LayersNameWhatTheyRead) {
  const ModelConfig c = parse_json(wrapped(e2b()));
  const ModelSources sources = list_sources(c, likely_naming(c), {});
  ASSERT_TRUE(sources.per_layer);
  EXPECT_EQ(sources.per_layer->table.parts[0].name,
            "model.language_model.embed_tokens_per_layer.weight");
  EXPECT_EQ(sources.per_layer->table.k, 35 * 256);
  const LayerSources& shared = sources.layers[15];
  EXPECT_EQ(shared.mixer->matrices()[0]->parts.size(), 1u) << "queries alone";
  EXPECT_EQ(shared.scalar.parts[0].name, "model.language_model.layers.15.layer_scalar");
  EXPECT_EQ(sources.layers[14].mixer->matrices()[0]->parts.size(), 3u);

  const ModelConfig keys_as_values = parse_json(large());
  const ModelSources of_large = list_sources(keys_as_values, likely_naming(keys_as_values), {});
  EXPECT_FALSE(of_large.per_layer);
  const std::vector<StoredPart>& qkv = of_large.layers[5].mixer->matrices()[0]->parts;
  ASSERT_EQ(qkv.size(), 3u);
  EXPECT_EQ(qkv[1].name, qkv[2].name);
  EXPECT_EQ(of_large.layers[4].mixer->matrices()[0]->parts[2].name,
            "model.layers.4.self_attn.v_proj.weight");
}

TEST(Gemma4Config, HostileValuesAreRefused) {
  constexpr auto kCorrupt = ErrorCode::kCorruptFile, kUnsupported = ErrorCode::kUnsupported;
  expect_refused(e2b(), "num_kv_shared_layers", 34, kCorrupt);  // leaves no full layer
  expect_refused(e2b(), "num_kv_shared_layers", 35, kCorrupt);
  expect_refused(e2b(), "num_kv_shared_layers", -1, kCorrupt);
  expect_refused(e2b(), "vocab_size_per_layer_input", 262143, kCorrupt);
  expect_refused(e2b(), "hidden_size_per_layer_input", int64_t{1} << 40, kCorrupt);
  expect_refused(e2b(), "head_dim", 250, kUnsupported);
  expect_refused(e2b(), "global_head_dim", 500, kUnsupported);
  expect_refused(e2b(), "global_head_dim", 1024, kCorrupt);
  expect_refused(large(), "num_global_key_value_heads", 5, kCorrupt);
  expect_refused(e2b(), "use_bidirectional_attention", "all", kUnsupported);
}

TEST(Gemma4Config, FullLayersHaveOneSizeOfHeads) {
  const auto with_layer = [](const Json& keys) {
    Json out = large_v5();
    out["per_layer_config"]["11"] = keys;
    return out;
  };
  for (const Json& keys : {Json{{"head_dim", 256}, {"num_key_value_heads", 4}},
                           Json{{"head_dim", 512}, {"num_key_value_heads", 8}}}) {
    expect_error(ErrorCode::kUnsupported, {"per_layer_config"},
                 [&] { parse_json(with_layer(keys)); });
  }
  const Json other{{"head_dim", 512}, {"num_key_value_heads", 4}, {"sliding_window", 256}};
  expect_error(ErrorCode::kUnsupported, {"per_layer_config: 11", "sliding_window"},
               [&] { parse_json(with_layer(other)); });
  expect_error(ErrorCode::kCorruptFile, {"per_layer_config"}, [&] { parse_json(with_layer(512)); });
  expect_refused(large_v5(), "per_layer_config", Json::array({1}), ErrorCode::kCorruptFile);
}

TEST(Gemma4Config, OtherFamiliesHaveNoProportionalRope) {
  const Json rope{{"rope_type", "proportional"}, {"rope_theta", 1e6}};
  expect_error(ErrorCode::kUnsupported, {"rope_type", "proportional"},
               [&] { parse_json(Json{{"model_type", "llama"}, {"rope_parameters", rope}}); });
}

}  // namespace
}  // namespace headrace
