// Granite 3: Llama with factors on embeddings, blocks, attention and logits.

#include "model/families/family.h"
#include "model/families/keys/layer_keys.h"

namespace headrace {

namespace {

float read_factor(ConfigReader& reader, const char* key) {
  constexpr double kLeast = 1e-9, kMost = 1e9;
  return static_cast<float>(reader.number(key, 1.0, kLeast, kMost));
}

void read_granite(ConfigReader& reader, ModelConfig& config) {
  read_attention_bias(reader, config);
  config.mlp_bias = reader.flag("mlp_bias", false);
  config.embedding_scale = read_factor(reader, "embedding_multiplier");
  config.residual_scale = read_factor(reader, "residual_multiplier");
  config.attention_scale = read_factor(reader, "attention_multiplier");
  config.logit_scale = 1.0f / read_factor(reader, "logits_scaling");
}

}  // namespace

const Family& granite_family() {
  static const Family kFamily{
      .model_type = "granite",
      .architectures = {"GraniteForCausalLM"},
      .defaults = {.max_position_embeddings = 2048},
      .read = read_granite,
      .harmless_keys = {},
  };
  return kFamily;
}

}  // namespace headrace
