#include "model/families/family.h"

namespace headrace {

namespace {

void read_llama(ConfigReader& reader, ModelConfig& config) {
  config.qkv_bias = config.o_bias = reader.flag("attention_bias", false);
  config.mlp_bias = reader.flag("mlp_bias", false);
  reader.require("pretraining_tp", 1);
  reader.require("rope_interleaved", false);
  require_agreeing_layer_types(reader, config);
}

void read_mistral(ConfigReader& reader, ModelConfig& config) {
  const auto window = reader.has_key("sliding_window")
                          ? reader.optional_integer("sliding_window", 1, kMaxWindow)
                          : std::optional<int64_t>(4096);
  config.layer_window.assign(config.layer_window.size(), static_cast<int32_t>(window.value_or(0)));
  require_agreeing_layer_types(reader, config);
}

}  // namespace

const Family& llama_family() {
  static const Family kFamily{
      .model_type = "llama",
      .architectures = {"LlamaForCausalLM", "LLaMAForCausalLM"},
      .defaults = {.max_position_embeddings = 2048},
      .read = read_llama,
      .harmless_keys = {"is_llama_config", "max_sequence_length"},
  };
  return kFamily;
}

const Family& mistral_family() {
  static const Family kFamily{
      .model_type = "mistral",
      .architectures = {"MistralForCausalLM"},
      .defaults = {.intermediate_size = 14336,
                   .num_kv_heads = 8,
                   .max_position_embeddings = 131072},
      .read = read_mistral,
      .harmless_keys = {},
  };
  return kFamily;
}

}  // namespace headrace
