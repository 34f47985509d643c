// GLM-4-0414 and GLM-Z1: norms in front of the blocks and behind them.

#include "model/families/family.h"
#include "model/families/keys/layer_keys.h"
#include "model/families/llama_layer.h"

namespace headrace {

namespace {

void read_glm4(ConfigReader& reader, ModelConfig& config) {
  config.qkv_bias = reader.flag("attention_bias", true);
}

LayerSources list_glm4_layer(const ModelConfig& config, const LayerNaming& naming) {
  return list_named_layer(config, naming,
                          {.mixer_post_norm = "post_self_attn_layernorm",
                           .feed_forward_post_norm = "post_mlp_layernorm",
                           .fused_gate_up = true});
}

}  // namespace

const Family& glm4_family() {
  static const Family kFamily{
      .model_type = "glm4",
      .architectures = {"Glm4ForCausalLM"},
      .defaults = {.vocab_size = 151552,
                   .intermediate_size = 13696,
                   .num_layers = 40,
                   .num_kv_heads = 2,
                   .head_dim = 128,
                   .max_position_embeddings = 131072,
                   .norm_eps = 1.5625e-7},
      .rope_style = RopeStyle::kInterleaved,
      .rope = {.partial_rotary = 0.5},
      .read = read_glm4,
      .list_layer = list_glm4_layer,
      .harmless_keys = {},
  };
  return kFamily;
}

}  // namespace headrace
