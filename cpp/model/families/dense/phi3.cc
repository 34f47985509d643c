// Phi-3, Phi-3.5-mini, Phi-4 and Phi-4-mini.

#include "model/families/family.h"
#include "model/families/keys/layer_keys.h"
#include "model/families/llama_layer.h"

namespace headrace {

namespace {

void read_phi3(ConfigReader& reader, ModelConfig& config) {
  config.layer_window.assign(config.layer_window.size(), read_window(reader, {}).value_or(0));
  for (const char* key : {"attention_bias", "mlp_bias", "lm_head_bias"}) reader.require(key, false);
  reader.require("full_attn_mod", 1);
  require_agreeing_layer_types(reader, config);
}

LayerSources list_phi3_layer(const ModelConfig& config, const LayerNaming& naming) {
  return list_named_layer(config, naming, {.fused_qkv = true, .fused_gate_up = true});
}

}  // namespace

const Family& phi3_family() {
  static const Family kFamily{
      .model_type = "phi3",
      .architectures = {"Phi3ForCausalLM"},
      .defaults = {.vocab_size = 32064,
                   .hidden_size = 3072,
                   .intermediate_size = 8192,
                   .max_position_embeddings = 4096,
                   .norm_eps = 1e-5},
      .rope = {.partial_rotary = 1.0, .longrope_original = 4096},
      .read = read_phi3,
      .list_layer = list_phi3_layer,
      .harmless_keys = {"interpolate_factor"},
  };
  return kFamily;
}

}  // namespace headrace
