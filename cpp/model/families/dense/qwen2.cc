#include "model/families/family.h"

namespace headrace {

namespace {

void read_qwen2(ConfigReader& reader, ModelConfig& config) {
  config.qkv_bias = true;  // always there; no key says so
  read_qwen_windows(reader, config);
}

}  // namespace

const Family& qwen2_family() {
  static const Family kFamily{
      .model_type = "qwen2",
      .architectures = {"Qwen2ForCausalLM"},
      .defaults = {.vocab_size = 151936, .intermediate_size = 22016, .num_kv_heads = 32},
      .read = read_qwen2,
      .harmless_keys = {"seq_length"},
  };
  return kFamily;
}

}  // namespace headrace
