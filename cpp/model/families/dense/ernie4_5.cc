#include "model/families/family.h"
#include "model/families/keys/ernie_keys.h"

namespace headrace {

namespace {

void read_ernie4_5(ConfigReader& reader, ModelConfig& config) {
  const bool bias = reader.flag("use_bias", false);
  config.qkv_bias = config.o_bias = config.mlp_bias = bias;
  require_plain_ernie(reader, config);
}

}  // namespace

const Family& ernie4_5_family() {
  static const Family kFamily{
      .model_type = "ernie4_5",
      // Both spellings occur in both layouts.
      .architectures = {"Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"},
      .defaults = {.vocab_size = 103424,
                   .hidden_size = 1024,
                   .intermediate_size = 3072,
                   .num_layers = 18,
                   .num_heads = 16,
                   .num_kv_heads = 2,
                   .head_dim = 128,
                   .max_position_embeddings = 131072,
                   .norm_eps = 1e-5,
                   .rope_theta = 500000.0,
                   .tie_word_embeddings = true},
      .rope_style = RopeStyle::kInterleaved,
      .has_paddle_layout = true,
      .read = read_ernie4_5,
      .harmless_keys = paddle_harmless_keys(),
  };
  return kFamily;
}

}  // namespace headrace
