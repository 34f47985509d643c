// OLMo 2 and OLMo 3: norms stand behind the blocks alone.

#include "model/families/family.h"
#include "model/families/keys/layer_keys.h"
#include "model/families/llama_layer.h"

namespace headrace {

namespace {

void read_olmo2(ConfigReader& reader, ModelConfig& config) {
  config.qk_norm = true;
  config.qk_norm_kind = QkNorm::kRow;
  read_attention_bias(reader, config);
  reader.require("clip_qkv", JsonValue());
}

void read_olmo3(ConfigReader& reader, ModelConfig& config) {
  read_olmo2(reader, config);
  read_windows(reader, read_window(reader, 4096), all_but_last_of(4), config);
}

}  // namespace

const Family& olmo2_family() {
  static const Family kFamily{
      .model_type = "olmo2",
      .architectures = {"Olmo2ForCausalLM"},
      .defaults = {.vocab_size = 50304, .max_position_embeddings = 2048, .norm_eps = 1e-5},
      .read = read_olmo2,
      .list_layer = list_layer_with_norms_behind,
      .harmless_keys = {},
  };
  return kFamily;
}

const Family& olmo3_family() {
  static const Family kFamily{
      .model_type = "olmo3",
      .architectures = {"Olmo3ForCausalLM"},
      .defaults = {.vocab_size = 50304,
                   .max_position_embeddings = 2048,
                   .norm_eps = 1e-5,
                   .rope_theta = 5e5},
      .sliding_rope = SlidingRope{5e5},
      .read = read_olmo3,
      .list_layer = list_layer_with_norms_behind,
      .harmless_keys = {},
  };
  return kFamily;
}

}  // namespace headrace
