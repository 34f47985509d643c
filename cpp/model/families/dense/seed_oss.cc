#include "model/families/family.h"

namespace headrace {

namespace {

void read_seed_oss(ConfigReader& reader, ModelConfig& config) {
  config.qkv_bias = reader.flag("attention_bias", true);
  config.o_bias = reader.flag("attention_out_bias", false);
  config.mlp_bias = reader.flag("mlp_bias", false);
}

}  // namespace

const Family& seed_oss_family() {
  static const Family kFamily{
      .model_type = "seed_oss",
      .architectures = {"SeedOssForCausalLM"},
      .defaults = {.vocab_size = 155136,
                   .intermediate_size = 27648,
                   .num_layers = 64,
                   .num_heads = 80,
                   .num_kv_heads = 8,
                   .head_dim = 128,
                   .max_position_embeddings = 524288},
      .read = read_seed_oss,
      .harmless_keys = {"residual_dropout", "pretraining_tp"},
  };
  return kFamily;
}

}  // namespace headrace
