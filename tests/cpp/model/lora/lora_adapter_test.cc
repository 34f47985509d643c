// What adapter folders may hold: adapter_config.json key by key, and tensors that don't fit.

#include "model/load/load_lora_adapter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>

#include "backend/cpu/cpu_backend.h"
#include "cpp/model/expect_error.h"
#include "cpp/model/lora_files.h"
#include "cpp/model/test_json.h"
#include "model/load/load_config.h"
#include "model/lora/lora_config.h"

namespace headrace {
namespace {

LoraConfig parse(const std::string& more) {
  return parse_lora_config(R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8)" + more + "}");
}

constexpr const char* kModule = "model.layers.3.self_attn.q_proj";

TEST(LoraConfig, ScaleIsAlphaByRankOrItsRoot) {
  EXPECT_EQ(parse("").rank_of(kModule), 4);
  EXPECT_FLOAT_EQ(parse("").scale_of(kModule), 2.0f);
  EXPECT_FLOAT_EQ(parse(R"(, "use_rslora": true)").scale_of(kModule), 4.0f);
  EXPECT_FLOAT_EQ(parse_lora_config(R"({"peft_type": "LORA"})").scale_of(kModule), 1.0f);
}

TEST(LoraConfig, PatternsNameModulesFromTheirEnd) {
  for (const char* name : {"q_proj", "self_attn.q_proj", "layers.3.self_attn.q_proj",
                           "^model.layers."
                           "3.self_attn.q_proj$",
                           R"(layers\\.3\\.self_attn\\.q_proj)", kModule}) {
    const LoraConfig config = parse(std::string(R"(, "rank_pattern": {")") + name +
                                    R"(": 16}, "alpha_pattern": {")" + name + R"(": 4})");
    EXPECT_EQ(config.rank_of(kModule), 16) << name;
    EXPECT_FLOAT_EQ(config.scale_of(kModule), 0.25f) << name;
    EXPECT_EQ(config.rank_of("model.layers.3.self_attn.k_proj"), 4) << name;
  }
  EXPECT_EQ(parse(R"(, "rank_pattern": {"proj": 16})").rank_of(kModule), 4);
  EXPECT_EQ(parse(R"(, "rank_pattern": {"^q_proj": 16})").rank_of(kModule), 4);
}

TEST(LoraConfig, PatternsThatDisagreeAreRefusedWhereBothMatch) {
  const LoraConfig config = parse(R"(, "alpha_pattern": {"q_proj": 1, "self_attn.q_proj": 2})");
  expect_error(ErrorCode::kUnsupported, {"q_proj", "both match"},
               [&] { config.scale_of(kModule); });
  EXPECT_FLOAT_EQ(config.scale_of("model.layers.3.self_attn.k_proj"), 2.0f);
}

TEST(LoraConfig, WhatDoesNotChangeTheComputationIsIgnored) {
  parse(R"(, "task_type": "CAUSAL_LM", "lora_dropout": 0.1, "fan_in_fan_out": true,
        "base_model_name_or_path": "x", "peft_version": "0.21.2", "inference_mode": true,
        "runtime_config": {"ephemeral_gpu_offload": false}, "qalora_group_size": 16,
        "init_lora_weights": "gaussian", "target_modules": "all-linear", "bias": "none",
        "exclude_modules": ["lm_head"], "layers_pattern": "layers", "use_dora": false,
        "modules_to_save": null, "megatron_core": "megatron.core", "loftq_config": {},
        "revision": "main", "a_new_switch": false, "another": null)");
}

struct Bad {
  const char* more;
  ErrorCode code;
  const char* word;
};

class BadLoraConfig : public testing::TestWithParam<Bad> {};

TEST_P(BadLoraConfig, IsRefusedByName) {
  expect_error(GetParam().code, {"adapter_config.json", GetParam().word},
               [] { parse(GetParam().more); });
}

constexpr ErrorCode kBad = ErrorCode::kCorruptFile;
constexpr ErrorCode kNotDone = ErrorCode::kUnsupported;
INSTANTIATE_TEST_SUITE_P(
    Keys, BadLoraConfig,
    testing::Values(Bad{R"(, "r": 4)", kBad, "twice"},
                    Bad{R"(, "use_rslora": 1)", kBad, "use_rslora"},
                    Bad{R"(, "target_modules": 3)", kBad, "target_modules"},
                    Bad{R"(, "target_modules": [3])", kBad, "target_modules"},
                    Bad{R"(, "rank_pattern": [1])", kBad, "rank_pattern"},
                    Bad{R"(, "rank_pattern": {"q": 0})", kBad, "rank_pattern"},
                    Bad{R"(, "rank_pattern": {"q": 1.5})", kBad, "rank_pattern"},
                    Bad{R"(, "rank_pattern": {"q": 1e300})", kBad, "rank_pattern"},
                    Bad{R"(, "rank_pattern": {"": 1})", kBad, "rank_pattern"},
                    Bad{R"(, "alpha_pattern": {"q": "x"})", kBad, "alpha_pattern"},
                    Bad{R"(, "alpha_pattern": {".*q_proj": 1})", kNotDone, ".*q_proj"},
                    Bad{R"(, "alpha_pattern": {"a|b": 1})", kNotDone, "alpha_pattern"},
                    Bad{R"(, "layers_to_transform": [0, -1])", kBad, "layers_to_transform"},
                    Bad{R"(, "layers_to_transform": "0")", kBad, "layers_to_transform"},
                    Bad{R"(, "bias": "lora_only")", kNotDone, "bias"},
                    Bad{R"(, "modules_to_save": ["lm_head"])", kNotDone, "modules_to_save"},
                    Bad{R"(, "use_dora": true)", kNotDone, "use_dora"},
                    Bad{R"(, "lora_bias": true)", kNotDone, "lora_bias"},
                    Bad{R"(, "use_qalora": true)", kNotDone, "use_qalora"},
                    Bad{R"(, "layer_replication": [[0, 4]])", kNotDone, "layer_replication"},
                    Bad{R"(, "alora_invocation_tokens": [1])", kNotDone, "alora_invocation_tokens"},
                    Bad{R"(, "trainable_token_indices": [1])", kNotDone, "trainable_token_indices"},
                    Bad{R"(, "target_parameters": ["x"])", kNotDone, "target_parameters"},
                    Bad{R"(, "init_lora_weights": "pissa_niter_4")", kNotDone, "init_lora_weights"},
                    Bad{R"(, "init_lora_weights": "loftq")", kNotDone, "init_lora_weights"},
                    Bad{R"(, "a_new_switch": true)", kNotDone, "a_new_switch"}));

TEST(LoraConfig, OtherKindsOfAdapterAreRefused) {
  expect_error(kNotDone, {"peft_type", "IA3"}, [] { parse_lora_config(R"({"peft_type":"IA3"})"); });
  expect_error(kBad, {"peft_type"}, [] { parse_lora_config("{}"); });
  expect_error(kBad, {"\"r\"", "4096"},
               [] { parse_lora_config(R"({"peft_type":"LORA","r":4097})"); });
  expect_error(kBad, {"lora_alpha"},
               [] { parse_lora_config(R"({"peft_type":"LORA","lora_alpha":1e300})"); });
  expect_error(kBad, {"JSON"}, [] { parse_lora_config("[1"); });
}

/// A tiny model and a well-formed adapter of it, which tests damage.
class LoraLoad : public testing::Test {
 protected:
  LoraLoad() : written_(write_adapter(folder_, config_, {})) {}

  std::unique_ptr<const LoraAdapter> load(int32_t max_rank = 8) {
    return load_lora_adapter(backend_, config_, DType::kF32, max_rank, folder_.path());
  }

  void expect_refused(ErrorCode code, std::initializer_list<std::string> words,
                      const std::function<void(std::vector<TensorToWrite>&)>& damage) {
    std::vector<TensorToWrite> tensors = adapter_tensors(written_, DType::kF32);
    damage(tensors);
    folder_.write("adapter_model.safetensors", safetensors_file(tensors));
    const size_t before = backend_->bytes_in_use();
    expect_error(code, words, [&] { load(); });
    EXPECT_EQ(backend_->bytes_in_use(), before);
  }

  void expect_refused_name(ErrorCode code, const std::string& word, const std::string& name) {
    expect_refused(code, {"adapter_model.safetensors", word}, [&](auto& tensors) {
      tensors.push_back({name, DType::kF32, {1}, std::string(4, '\0')});
    });
  }

  const ModelConfig config_ = parse_model_config(
      R"({"model_type":"llama","vocab_size":48,"hidden_size":32,"intermediate_size":48,
          "num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":16})",
      "");
  const std::shared_ptr<Backend> backend_ = make_cpu_backend({});
  const TempFolder folder_;
  const std::vector<WrittenModule> written_;
};

TEST_F(LoraLoad, AWellFormedFolderLoads) {
  const auto adapter = load();
  EXPECT_EQ(adapter->rank(), 8);
  EXPECT_EQ(adapter->num_modules(), 14);
  EXPECT_GE(adapter->bytes(), plan_lora_bytes(config_, DType::kF32, 8));
  EXPECT_NE(adapter->linear(7), nullptr);
}

/// Adapters name a vision model's layers as its checkpoints do, older and newer ones; its tower
/// stays.
TEST_F(LoraLoad, LayersBesideATowerHaveNamesOfTheirOwn) {
  const ModelConfig config = parse_model_config(
      R"({"model_type":"qwen2_vl","vocab_size":48,"hidden_size":32,"intermediate_size":48,
          "num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,
          "rope_scaling":{"type":"mrope","mrope_section":[2,3,3]},
          "vision_config":{"depth":1,"embed_dim":32,"num_heads":2,"hidden_size":32,
                           "patch_size":14,"mlp_ratio":2}})",
      "");
  std::vector<WrittenModule> modules = write_adapter(folder_, config, {});
  const auto load_as = [&](const std::string& prefix) {
    std::vector<WrittenModule> named = modules;
    for (WrittenModule& module : named) module.path = prefix + module.path;
    folder_.write("adapter_model.safetensors",
                  safetensors_file(adapter_tensors(named, DType::kF32)));
    return load_lora_adapter(backend_, config, DType::kF32, 8, folder_.path())->num_modules();
  };
  EXPECT_EQ(load_as(""), 14);
  for (WrittenModule& module : modules) module.path.erase(0, std::string("model.").size());
  EXPECT_EQ(load_as("model.language_model."), 14);
  for (const char* other : {"model.visual.", "model.text_model.", "language_model."}) {
    expect_error(kNotDone, {other, "no such linear"}, [&] { load_as(other); });
  }
}

TEST_F(LoraLoad, FilesThatAreMissingAreNamed) {
  const TempFolder other;
  const auto load_other = [&] {
    load_lora_adapter(backend_, config_, DType::kF32, 8, other.path());
  };
  expect_error(ErrorCode::kNotFound, {"adapter_config.json"}, load_other);
  other.write("adapter_config.json", adapter_config({}));
  expect_error(ErrorCode::kNotFound, {"adapter_model.safetensors"}, load_other);
  other.write("adapter_model.bin", "pickle");
  expect_error(kNotDone, {"adapter_model.bin", "safetensors"}, load_other);
  expect_error(ErrorCode::kNotFound, {"/no/such", "folder"},
               [&] { load_lora_adapter(backend_, config_, DType::kF32, 8, "/no/such"); });
}

TEST_F(LoraLoad, ARankAboveTheLimitIsRefused) {
  expect_error(ErrorCode::kLimitExceeded, {"rank 8", "max_lora_rank is 7"}, [&] { load(7); });
}

TEST_F(LoraLoad, TensorsThatDoNotFitAreNamed) {
  expect_refused(kBad, {"q_proj.lora_A", "[8, 32]"}, [](auto& tensors) {
    tensors[0].shape = {4, 32};
    tensors[0].bytes.resize(4 * 32 * 4);
  });
  expect_refused(kBad, {"q_proj.lora_B", "[32, 8]"},
                 [](auto& tensors) { tensors[1].shape = {8, 32}; });
  expect_refused(kNotDone, {"q_proj.lora_B", "int64"}, [](auto& tensors) {
    tensors[1].dtype = DType::kI64;
    tensors[1].bytes.resize(32 * 8 * 8);
  });
  expect_refused(kBad, {"q_proj", "lora_A", "other half"},
                 [](auto& tensors) { tensors.erase(tensors.begin() + 1); });
  expect_refused(kBad, {"no tensors"}, [](auto& tensors) { tensors.clear(); });
}

TEST_F(LoraLoad, NumbersThatAreNotFiniteAreNamed) {
  for (const size_t which : {size_t{0}, size_t{1}}) {
    expect_refused(kBad, {which == 0 ? "q_proj.lora_A" : "q_proj.lora_B", "holds nan"},
                   [which](auto& tensors) {
                     const float nan = std::nanf("");
                     std::memcpy(tensors[which].bytes.data() + 40, &nan, sizeof nan);
                   });
  }
}

TEST(LoraConfig, MoreNamesThanAnyModelHasAreRefused) {
  std::string targets = "[\"a\"", patterns = "{\"a\": 1";
  for (int i = 0; i < 1 << 14; ++i) {
    targets += ",\"a\"";
    patterns += ",\"a" + std::to_string(i) + "\": 1";
  }
  expect_error(kBad, {"target_modules", "at most 16384"},
               [&] { parse(", \"target_modules\": " + targets + "]"); });
  expect_error(kBad, {"rank_pattern", "at most 16384"},
               [&] { parse(", \"rank_pattern\": " + patterns + "}"); });
}

TEST_F(LoraLoad, TensorsThatAreNotUnderstoodAreNamed) {
  const std::string layer = "base_model.model.model.layers.0.";
  expect_refused_name(kNotDone, "base_model", "model.layers.0.self_attn.q_proj.lora_A.weight");
  expect_refused_name(kNotDone, "lora_embedding_A",
                      "base_model.model.model.embed_tokens.lora_embedding_A");
  expect_refused_name(kNotDone, "lm_head", "base_model.model.lm_head.lora_A.weight");
  expect_refused_name(kNotDone, "merge_and_unload", "base_model.model.pooler.dense.lora_A.weight");
  expect_refused_name(kNotDone, "merge_and_unload", "base_model.model.classifier.weight");
  expect_refused_name(kNotDone, "layers.7",
                      "base_model.model.model.layers.7.mlp.up_proj.lora_A.weight");
  expect_refused_name(kNotDone, "lora_magnitude_vector",
                      layer + "self_attn.q_proj.lora_magnitude_vector");
  expect_refused_name(kNotDone, "bias", layer + "self_attn.q_proj.lora_B.bias");
  expect_refused_name(kNotDone, "twice", layer + "self_attn.q_proj.lora_A.default.weight");
  // Fused weights are the Paddle layout's, which Llama has not.
  expect_refused_name(kNotDone, "qkv_proj", layer + "self_attn.qkv_proj.lora_A.weight");
}

TEST_F(LoraLoad, TensorsThatTheConfigLeavesOutAreRefused) {
  AdapterToWrite fewer;
  fewer.modules = {"self_attn.q_proj"};
  folder_.write("adapter_config.json", adapter_config(fewer));
  expect_error(kNotDone, {"target_modules", "layers.0"}, [&] { load(); });
  Json config = Json::parse(adapter_config({}));
  config["layers_to_transform"] = {0};
  folder_.write("adapter_config.json", config.dump());
  expect_error(kNotDone, {"layers_to_transform", "layers.1"}, [&] { load(); });
}

TEST_F(LoraLoad, AFusedModuleBesideItsPartIsRefused) {
  const ModelConfig ernie = parse_model_config(
      R"({"model_type":"ernie4_5","vocab_size":48,"hidden_size":32,"intermediate_size":48,
          "num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":16})",
      "");
  AdapterToWrite both;
  both.modules = {"self_attn.qkv_proj", "self_attn.k_proj"};
  write_adapter(folder_, ernie, both);
  expect_error(kNotDone, {"k_proj", "same weights"},
               [&] { load_lora_adapter(backend_, ernie, DType::kF32, 8, folder_.path()); });
}

TEST_F(LoraLoad, ATruncatedFileIsRefused) {
  const std::string bytes = safetensors_file(adapter_tensors(written_, DType::kF32));
  for (const size_t size : {size_t{0}, size_t{7}, size_t{100}, bytes.size() - 1}) {
    folder_.write("adapter_model.safetensors", bytes.substr(0, size));
    expect_error(kBad, {"adapter_model.safetensors"}, [&] { load(); });
  }
}

}  // namespace
}  // namespace headrace
