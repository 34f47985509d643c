#include <gtest/gtest.h>

#include <string>

#include "cpp/model/checkpoint_files.h"
#include "cpp/model/expect_error.h"
#include "cpp/model/test_json.h"
#include "model/config/model_config.h"
#include "model/load/load_config.h"

namespace headrace {
namespace {

/// A config with every key that a published one of this family has.
Json published(const std::string& model_type) {
  const auto with = [](const char* text) { return Json::parse(text); };
  if (model_type == "llama") {
    return with(R"({"architectures":["LlamaForCausalLM"],"attention_bias":false,
      "attention_dropout":0.0,"bos_token_id":128000,"eos_token_id":[128001,128008,128009],
      "head_dim":64,"hidden_act":"silu","hidden_size":2048,"initializer_range":0.02,
      "intermediate_size":8192,"max_position_embeddings":131072,"mlp_bias":false,
      "model_type":"llama","num_attention_heads":32,"num_hidden_layers":16,
      "num_key_value_heads":8,"pretraining_tp":1,"rms_norm_eps":1e-05,
      "rope_scaling":{"factor":32.0,"high_freq_factor":4.0,"low_freq_factor":1.0,
        "original_max_position_embeddings":8192,"rope_type":"llama3"},
      "rope_theta":500000.0,"tie_word_embeddings":true,"torch_dtype":"bfloat16",
      "transformers_version":"4.45.0.dev0","use_cache":true,"vocab_size":128256})");
  }
  if (model_type == "mistral") {
    return with(R"({"architectures":["MistralForCausalLM"],"attention_dropout":0.0,
      "bos_token_id":1,"eos_token_id":2,"hidden_act":"silu","hidden_size":4096,
      "initializer_range":0.02,"intermediate_size":14336,"max_position_embeddings":32768,
      "model_type":"mistral","num_attention_heads":32,"num_hidden_layers":32,
      "num_key_value_heads":8,"rms_norm_eps":1e-05,"rope_theta":10000.0,"sliding_window":4096,
      "tie_word_embeddings":false,"torch_dtype":"bfloat16","transformers_version":"4.34.0.dev0",
      "use_cache":true,"vocab_size":32000})");
  }
  if (model_type == "qwen2") {
    return with(R"({"architectures":["Qwen2ForCausalLM"],"attention_dropout":0.0,
      "bos_token_id":151643,"eos_token_id":151645,"hidden_act":"silu","hidden_size":896,
      "initializer_range":0.02,"intermediate_size":4864,"max_position_embeddings":32768,
      "max_window_layers":21,"model_type":"qwen2","num_attention_heads":14,
      "num_hidden_layers":24,"num_key_value_heads":2,"rms_norm_eps":1e-06,
      "rope_theta":1000000.0,"sliding_window":32768,"tie_word_embeddings":true,
      "torch_dtype":"bfloat16","transformers_version":"4.43.1","use_cache":true,
      "use_mrope":false,"use_sliding_window":false,"vocab_size":151936})");
  }
  if (model_type == "qwen3") {
    return with(R"({"architectures":["Qwen3ForCausalLM"],"attention_bias":false,
      "attention_dropout":0.0,"bos_token_id":151643,"eos_token_id":151645,"head_dim":128,
      "hidden_act":"silu","hidden_size":1024,"initializer_range":0.02,"intermediate_size":3072,
      "max_position_embeddings":40960,"max_window_layers":28,"model_type":"qwen3",
      "num_attention_heads":16,"num_hidden_layers":28,"num_key_value_heads":8,
      "rms_norm_eps":1e-06,"rope_scaling":null,"rope_theta":1000000,"sliding_window":null,
      "tie_word_embeddings":true,"torch_dtype":"bfloat16","transformers_version":"4.51.0",
      "use_cache":true,"use_sliding_window":false,"vocab_size":151936})");
  }
  return with(R"({"architectures":["Ernie4_5_ForCausalLM"],"bos_token_id":1,"eos_token_id":2,
      "hidden_act":"silu","hidden_size":1024,"intermediate_size":3072,
      "max_position_embeddings":131072,"model_type":"ernie4_5","num_attention_heads":16,
      "num_key_value_heads":2,"head_dim":128,"num_hidden_layers":18,"pad_token_id":0,
      "rms_norm_eps":1e-05,"use_cache":false,"vocab_size":103424,"rope_theta":500000,
      "use_rmsnorm":true,"use_bias":false,"tie_word_embeddings":true,"dtype":"bfloat16",
      "fuse_rms_norm":true,"fuse_swiglu":true,"fuse_linear":true,"fuse_rope":true,
      "use_flash_attention":true,"compression_ratio":1.0,"weight_share_add_bias":true,
      "hidden_dropout_prob":0.0,"ignored_index":-100,"paddleformers_version":"0.1"})");
}

ModelConfig parse(const Json& json, const std::string& generation = "") {
  return parse_model_config(json.dump(), generation);
}

/// The published config with one key set (or, for a null pointer, removed).
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

TEST(Config, Llama) {
  const ModelConfig c = parse(published("llama"));
  EXPECT_EQ(c.model_type, "llama");
  EXPECT_EQ(c.architecture, "LlamaForCausalLM");
  EXPECT_EQ(c.vocab_size, 128256);
  EXPECT_EQ(c.hidden_size, 2048);
  EXPECT_EQ(c.intermediate_size, 8192);
  EXPECT_EQ(c.num_layers, 16);
  EXPECT_EQ(c.num_heads, 32);
  EXPECT_EQ(c.num_kv_heads, 8);
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_EQ(c.max_position_embeddings, 131072);
  EXPECT_FLOAT_EQ(c.norm.eps, 1e-5f);
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_FALSE(c.qkv_bias || c.o_bias || c.mlp_bias || c.qk_norm);
  EXPECT_EQ(c.ropes[0].style, RopeStyle::kNeox);
  EXPECT_EQ(c.ropes[0].rotary_dim, 64);
  EXPECT_EQ(c.checkpoint_dtype, DType::kBF16);
  EXPECT_EQ(c.eos_token_ids, (std::vector<int32_t>{128001, 128008, 128009}));
  EXPECT_EQ(c.layer_window, std::vector<int32_t>(16, 0));
}

TEST(Config, LlamaBiases) {
  EXPECT_TRUE(parse(changed("llama", "attention_bias", true)).o_bias);
  EXPECT_TRUE(parse(changed("llama", "attention_bias", true)).qkv_bias);
  EXPECT_TRUE(parse(changed("llama", "mlp_bias", true)).mlp_bias);
}

TEST(Config, AttentionIsCausalUnlessItSaysOtherwise) {
  EXPECT_TRUE(parse(published("qwen2")).causal);
  EXPECT_TRUE(parse(changed("qwen2", "is_causal", nullptr)).causal);
  EXPECT_FALSE(parse(changed("qwen2", "is_causal", false)).causal);
  EXPECT_FALSE(parse(changed("llama", "is_causal", false)).causal);
  // gte-Qwen2's own code, of which the key may change the mind.
  Json json = changed("qwen2", "auto_map", Json{{"AutoModel", "modeling_qwen.Qwen2Model"}});
  EXPECT_FALSE(parse(json).causal);
  json["is_causal"] = true;
  EXPECT_TRUE(parse(json).causal);
  json["auto_map"] = Json::array({1});
  EXPECT_TRUE(parse(json).causal);
  expect_error(ErrorCode::kUnsupported, {"is_causal", "window"},
               [] { parse(changed("mistral", "is_causal", false)); });
}

TEST(Config, TheBodyOfAnArchitectureIsItsOwn) {
  const Json names = Json::array({"Qwen3Model"});
  EXPECT_EQ(parse(changed("qwen3", "architectures", names)).architecture, "Qwen3ForCausalLM");
  expect_error(ErrorCode::kUnsupported, {"architectures"},
               [&] { parse(changed("qwen2", "architectures", names)); });
}

TEST(Config, MistralSlidesInAllLayers) {
  EXPECT_EQ(parse(published("mistral")).layer_window, std::vector<int32_t>(32, 4096));
  EXPECT_EQ(parse(changed("mistral", "sliding_window", nullptr)).layer_window[5], 0);
  EXPECT_EQ(parse(without("mistral", "sliding_window")).layer_window[5], 4096);
}

TEST(Config, Qwen2BiasAndWindows) {
  Json json = published("qwen2");
  EXPECT_TRUE(parse(json).qkv_bias);
  EXPECT_FALSE(parse(json).o_bias);
  EXPECT_EQ(parse(json).layer_window, std::vector<int32_t>(24, 0));
  json["use_sliding_window"] = true;
  json["sliding_window"] = 100;
  const ModelConfig c = parse(json);
  EXPECT_EQ(c.layer_window[20], 0);
  EXPECT_EQ(c.layer_window[21], 100);
  json["layer_types"] = std::vector<std::string>(24, "full_attention");
  json["layer_types"][3] = "sliding_attention";
  EXPECT_EQ(parse(json).layer_window[3], 100);
  EXPECT_EQ(parse(json).layer_window[23], 0);
  json["sliding_window"] = nullptr;
  EXPECT_EQ(parse(json).layer_window[3], 0);
}

TEST(Config, Qwen3NormsQueriesAndKeys) {
  const ModelConfig c = parse(published("qwen3"));
  EXPECT_TRUE(c.qk_norm);
  EXPECT_FALSE(c.qkv_bias);
  EXPECT_TRUE(parse(changed("qwen3", "attention_bias", true)).o_bias);
}

TEST(Config, ErnieInterleavesAndKnowsPaddlesKeys) {
  const ModelConfig c = parse(published("ernie4_5"));
  EXPECT_EQ(c.ropes[0].style, RopeStyle::kInterleaved);
  EXPECT_EQ(c.layout, CheckpointLayout::kPaddle);
  const ModelConfig biased = parse(changed("ernie4_5", "use_bias", true));
  EXPECT_TRUE(biased.qkv_bias && biased.o_bias && biased.mlp_bias);
  Json torch = without("ernie4_5", "dtype");
  torch["torch_dtype"] = "bfloat16";
  EXPECT_EQ(parse(torch).layout, CheckpointLayout::kTorch);
}

TEST(Config, DefaultsOfEachFamily) {
  const auto bare = [](const char* type) { return parse(Json{{"model_type", type}}); };
  EXPECT_EQ(bare("llama").num_kv_heads, 32);
  EXPECT_EQ(bare("llama").max_position_embeddings, 2048);
  EXPECT_EQ(bare("mistral").num_kv_heads, 8);
  EXPECT_EQ(bare("qwen2").num_kv_heads, 32);
  EXPECT_EQ(bare("qwen2").vocab_size, 151936);
  EXPECT_EQ(bare("qwen3").head_dim, 128);
  const ModelConfig ernie = bare("ernie4_5");
  EXPECT_EQ(ernie.head_dim, 128);
  EXPECT_EQ(ernie.num_kv_heads, 2);
  EXPECT_TRUE(ernie.tie_word_embeddings);
  EXPECT_FLOAT_EQ(ernie.norm.eps, 1e-5f);
  EXPECT_FLOAT_EQ(ernie.ropes[0].inv_freq[1], std::pow(500000.0f, -2.0f / 128));
  EXPECT_EQ(bare("llama").architecture, "LlamaForCausalLM");
}

TEST(Config, NullAndAbsentHeads) {
  EXPECT_EQ(parse(changed("llama", "num_key_value_heads", nullptr)).num_kv_heads, 32);
  EXPECT_EQ(parse(changed("mistral", "num_key_value_heads", nullptr)).num_kv_heads, 32);
  EXPECT_EQ(parse(without("llama", "head_dim")).head_dim, 64);
  EXPECT_EQ(parse(changed("ernie4_5", "head_dim", nullptr)).head_dim, 64);
}

TEST(Config, DtypeKeys) {
  EXPECT_EQ(parse(changed("llama", "dtype", "float16")).checkpoint_dtype, DType::kF16);
  EXPECT_EQ(parse(changed("llama", "torch_dtype", "torch.float32")).checkpoint_dtype, DType::kF32);
}

TEST(Config, EndOfTextIdsOfBothFiles) {
  const Json json = published("qwen2");
  EXPECT_EQ(parse(json, R"({"eos_token_id":[151643,151645],"temperature":0.7})").eos_token_ids,
            (std::vector<int32_t>{151645, 151643}));
  EXPECT_EQ(parse(json, R"({"eos_token_id":null})").eos_token_ids, (std::vector<int32_t>{151645}));
  // An id that the vocabulary has not can't be generated.
  EXPECT_EQ(parse(json, R"({"eos_token_id":151936})").eos_token_ids.size(), 1u);
  EXPECT_TRUE(parse(without("qwen2", "eos_token_id")).eos_token_ids.empty());
  const auto corrupt = ErrorCode::kCorruptFile;
  expect_error(corrupt, {"generation_config.json", "eos_token_id"},
               [&] { parse(json, R"({"eos_token_id":-1})"); });
  expect_error(corrupt, {"eos_token_id"}, [&] { parse(json, R"({"eos_token_id":["</s>"]})"); });
  expect_error(corrupt, {"generation_config.json", "not valid JSON"}, [&] { parse(json, "{"); });
}

struct BadKey {
  const char* what;
  const char* model_type;
  const char* key;
  Json value;
  ErrorCode code;
};

class BadConfig : public testing::TestWithParam<BadKey> {};

TEST_P(BadConfig, NamesTheKey) {
  const BadKey& bad = GetParam();
  expect_error(bad.code, {"config.json", bad.key},
               [&] { parse(changed(bad.model_type, bad.key, bad.value)); });
}

std::vector<BadKey> bad_keys() {
  const auto corrupt = ErrorCode::kCorruptFile, unsupported = ErrorCode::kUnsupported;
  return {
      {"NoLayers", "llama", "num_hidden_layers", 0, corrupt},
      {"TooManyLayers", "llama", "num_hidden_layers", 1025, corrupt},
      {"NegativeHidden", "llama", "hidden_size", -2048, corrupt},
      {"HugeHidden", "llama", "hidden_size", 1 << 21, corrupt},
      {"HiddenNotMultiple", "qwen2", "hidden_size", 897, corrupt},
      {"FractionalHidden", "llama", "hidden_size", 2048.5, corrupt},
      {"HiddenText", "llama", "hidden_size", "2048", corrupt},
      {"HiddenNull", "llama", "hidden_size", nullptr, corrupt},
      {"HugeIntermediate", "llama", "intermediate_size", 1 << 23, corrupt},
      {"HugeVocab", "llama", "vocab_size", (1 << 24) + 1, corrupt},
      {"NoVocab", "llama", "vocab_size", 0, corrupt},
      {"HugePositions", "llama", "max_position_embeddings", uint64_t{1} << 40, corrupt},
      {"MaxUint", "llama", "max_position_embeddings", ~uint64_t{0}, corrupt},
      {"HeadsNotMultiple", "llama", "num_key_value_heads", 5, corrupt},
      {"MoreKvHeads", "llama", "num_key_value_heads", 64, corrupt},
      {"NoKvHeads", "llama", "num_key_value_heads", 0, corrupt},
      {"HeadDim20", "llama", "head_dim", 20, unsupported},
      {"HeadDim528", "llama", "head_dim", 528, unsupported},
      {"HeadDimZero", "llama", "head_dim", 0, corrupt},
      {"EpsZero", "llama", "rms_norm_eps", 0.0, corrupt},
      {"EpsLarge", "llama", "rms_norm_eps", 2.0, corrupt},
      {"TieText", "llama", "tie_word_embeddings", "yes", corrupt},
      {"Dtype", "llama", "dtype", "float8_e4m3fn", unsupported},
      {"DtypeNumber", "llama", "dtype", 16, corrupt},
      {"EosText", "llama", "eos_token_id", "</s>", corrupt},
      {"ModelType", "llama", "model_type", "mamba", unsupported},
      {"ModelTypeNull", "llama", "model_type", nullptr, corrupt},
      {"Architecture", "llama", "architectures", Json::array({"LlamaForSequenceClassification"}),
       unsupported},
      {"ArchitectureText", "llama", "architectures", "LlamaForCausalLM", corrupt},
      {"Activation", "llama", "hidden_act", "relu", unsupported},
      {"TensorParallelTraining", "llama", "pretraining_tp", 2, unsupported},
      {"Interleaved", "llama", "rope_interleaved", true, unsupported},
      {"PartialRotary", "llama", "partial_rotary_factor", 0.5, unsupported},
      {"Multiplier", "llama", "attention_multiplier", 0.0078125, unsupported},
      {"Experts", "llama", "num_experts", 8, unsupported},
      {"Quantized", "llama", "quantization_config", Json{{"quant_method", "awq"}}, unsupported},
      {"UnknownObject", "qwen2", "dual_chunk_attention_config", Json{{"chunk_size", 262144}},
       unsupported},
      {"LlamaLayerTypes", "llama", "layer_types",
       Json(std::vector<std::string>(16, "sliding_attention")), unsupported},
      {"UnknownLayerType", "qwen3", "layer_types",
       Json(std::vector<std::string>(28, "linear_attention")), unsupported},
      {"LayerTypesShort", "qwen3", "layer_types", Json::array({"full_attention"}), corrupt},
      {"WindowZero", "mistral", "sliding_window", 0, corrupt},
      {"LayerNorm", "ernie4_5", "use_rmsnorm", false, unsupported},
      {"Compression", "ernie4_5", "compression_ratio", 2.0, unsupported},
      {"ErnieExperts", "ernie4_5", "moe_num_experts", 64, unsupported},
      {"TailLayer", "ernie4_5", "remove_tail_layer", true, unsupported},
      {"Rope3d", "ernie4_5", "rope_3d", true, unsupported},
  };
}

INSTANTIATE_TEST_SUITE_P(Keys, BadConfig, testing::ValuesIn(bad_keys()),
                         [](const auto& test) { return std::string(test.param.what); });

TEST(Config, NeutralUnknownKeysAreFine) {
  Json json = published("llama");
  json["num_experts"] = 0;
  json["quantization_config"] = nullptr;
  json["some_flag"] = false;
  json["some_list"] = Json::array();
  json["hidden_act"] = "swish";
  EXPECT_NO_THROW(parse(json));
}

TEST(Config, NotJson) {
  const auto corrupt = ErrorCode::kCorruptFile;
  expect_error(corrupt, {"config.json", "byte"}, [] { parse_model_config("{", ""); });
  expect_error(corrupt, {"config.json"}, [] { parse_model_config("", ""); });
  expect_error(corrupt, {"not an object"}, [] { parse_model_config("[1]", ""); });
  expect_error(corrupt, {"twice"}, [] {
    parse_model_config(R"({"model_type":"llama","vocab_size":7,"vocab_size":9})", "");
  });
  expect_error(corrupt, {"nests"}, [] {
    parse_model_config(R"({"a":)" + std::string(1000, '[') + std::string(1000, ']') + "}", "");
  });
}

TEST(Config, LoadsAFolder) {
  TempFolder folder;
  expect_error(ErrorCode::kNotFound, {"config.json"}, [&] { load_model_config(folder.path()); });
  folder.write("config.json", published("qwen3").dump());
  EXPECT_EQ(load_model_config(folder.path()).eos_token_ids.size(), 1u);
  folder.write("generation_config.json", R"({"eos_token_id":[151643]})");
  EXPECT_EQ(load_model_config(folder.path()).eos_token_ids.size(), 2u);
  folder.write("config.json", std::string(5u << 20, ' '));
  expect_error(ErrorCode::kCorruptFile, {"at most"}, [&] { load_model_config(folder.path()); });
}

TEST(Config, ShippedModel) {
  const ModelConfig c = load_model_config(HEADRACE_TINY_MODEL);
  EXPECT_EQ(c.model_type, "ernie4_5");
  EXPECT_EQ(c.layout, CheckpointLayout::kTorch);
}

TEST(Config, SupportedTypes) {
  EXPECT_EQ(supported_model_types(), (std::vector<std::string>{"llama",
                                                               "mistral",
                                                               "qwen2",
                                                               "qwen3",
                                                               "ernie4_5",
                                                               "ernie4_5_moe",
                                                               "qwen3_moe",
                                                               "qwen2_moe",
                                                               "mixtral",
                                                               "glm4_moe",
                                                               "gpt_oss",
                                                               "qwen2_vl",
                                                               "qwen2_5_vl",
                                                               "smolvlm",
                                                               "idefics3",
                                                               "qwen3_vl",
                                                               "qwen3_vl_moe",
                                                               "qwen3_5",
                                                               "qwen3_5_moe",
                                                               "ernie4_5_moe_vl",
                                                               "ernie4_5_vl_moe",
                                                               "gemma2",
                                                               "gemma3_text",
                                                               "gemma3",
                                                               "gemma4_text",
                                                               "deepseek_v2",
                                                               "deepseek_v3",
                                                               "glm4_moe_lite",
                                                               "smollm3",
                                                               "olmo2",
                                                               "olmo3",
                                                               "phi3",
                                                               "granite",
                                                               "exaone4",
                                                               "glm4",
                                                               "seed_oss",
                                                               "ministral3",
                                                               "cohere2",
                                                               "hunyuan_v1_dense",
                                                               "lfm2",
                                                               "lfm2_moe",
                                                               "qwen3_5_text",
                                                               "qwen3_5_moe_text",
                                                               "qwen3_next",
                                                               "granitemoehybrid",
                                                               "nemotron_h",
                                                               "falcon_h1",
                                                               "bert",
                                                               "roberta",
                                                               "xlm-roberta",
                                                               "modernbert",
                                                               "gemma4",
                                                               "mistral3"}));
}

}  // namespace
}  // namespace headrace
