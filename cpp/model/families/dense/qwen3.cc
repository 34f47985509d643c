#include "model/families/family.h"

namespace headrace {

namespace {

void read_qwen3(ConfigReader& reader, ModelConfig& config) {
  config.qk_norm = true;
  config.qkv_bias = config.o_bias = reader.flag("attention_bias", false);
  read_qwen_windows(reader, config);
}

}  // namespace

const Family& qwen3_family() {
  static const Family kFamily{
      .model_type = "qwen3",
      .architectures = {"Qwen3ForCausalLM"},
      .defaults = {.vocab_size = 151936,
                   .intermediate_size = 22016,
                   .num_kv_heads = 32,
                   .head_dim = 128},
      .read = read_qwen3,
      .harmless_keys = {},
  };
  return kFamily;
}

}  // namespace headrace
