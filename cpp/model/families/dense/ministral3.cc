// Ministral 3: queries of positions behind the length of training grow.

#include "model/families/family.h"
#include "model/families/keys/layer_keys.h"

namespace headrace {

namespace {

void read_ministral3(ConfigReader& reader, ModelConfig& config) {
  config.layer_window.assign(config.layer_window.size(), read_window(reader, {}).value_or(0));
  require_agreeing_layer_types(reader, config);
}

/// What transformers takes where a config has no rope_parameters.
const JsonValue& usual_rope() {
  static const JsonValue kRope{JsonValue::Object{{"rope_type", "yarn"},
                                                 {"rope_theta", 1e6},
                                                 {"factor", 16.0},
                                                 {"original_max_position_embeddings", 16384},
                                                 {"beta_fast", 32.0},
                                                 {"beta_slow", 1.0},
                                                 {"mscale", 1.0},
                                                 {"mscale_all_dim", 1.0},
                                                 {"llama_4_scaling_beta", 0.1}}};
  return kRope;
}

}  // namespace

const Family& ministral3_family() {
  static const Family kFamily{
      .model_type = "ministral3",
      .architectures = {"Ministral3ForCausalLM"},
      .defaults = {.vocab_size = 131072,
                   .intermediate_size = 14336,
                   .num_layers = 34,
                   .num_kv_heads = 8,
                   .head_dim = 128,
                   .max_position_embeddings = 262144,
                   .norm_eps = 1e-5},
      .rope = {.reads_query_beta = true, .usual = &usual_rope()},
      .read = read_ministral3,
      .harmless_keys = {},
  };
  return kFamily;
}

}  // namespace headrace
