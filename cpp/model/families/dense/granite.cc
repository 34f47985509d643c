// Granite 3: Llama with factors on embeddings, blocks, attention and logits.

#include "model/families/family.h"
#include "model/families/keys/layer_keys.h"

namespace headrace {

namespace {

void read_granite(ConfigReader& reader, ModelConfig& config) {
  read_attention_bias(reader, config);
  config.mlp_bias = reader.flag("mlp_bias", false);
  read_granite_factors(reader, config);
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
