// Command R7B, Command A and Aya: attention and the MLP read the same layer norm. Where some layers
// have a window, the others don't turn.

#include "model/families/family.h"
#include "model/families/keys/layer_keys.h"
#include "model/families/llama_layer.h"

namespace headrace {

namespace {

void read_cohere2(ConfigReader& reader, ModelConfig& config) {
  config.norm.kind = NormKind::kLayer;
  read_attention_bias(reader, config);
  config.logit_scale = static_cast<float>(reader.number("logit_scale", 0.0625, 1e-9, 1e9));
  const int64_t period = reader.integer("sliding_window_pattern", 4, 1, kMaxWindow);
  reader.require("layer_switch", period);
  read_windows(reader, read_window(reader, 4096), all_but_last_of(period), config);
  turn_sliding_layers_only(config);
  reader.require("use_qk_norm", false);
  reader.require("use_parallel_block", true);
  reader.require("use_gated_activation", true);
  reader.require("position_embedding_type", "rope_gptj");
  reader.require("rotary_pct", 1.0);
}

LayerSources list_cohere2_layer(const ModelConfig& config, const LayerNaming& naming) {
  return list_named_layer(config, naming, {.feed_forward_norm = nullptr, .parallel = true});
}

}  // namespace

const Family& cohere2_family() {
  static const Family kFamily{
      .model_type = "cohere2",
      .architectures = {"Cohere2ForCausalLM"},
      .defaults = {.vocab_size = 256000,
                   .hidden_size = 8192,
                   .intermediate_size = 22528,
                   .num_layers = 40,
                   .num_heads = 64,
                   .max_position_embeddings = 8192,
                   .norm_eps_key = "layer_norm_eps",
                   .norm_eps = 1e-5,
                   .tie_word_embeddings = true},
      .rope_style = RopeStyle::kInterleaved,
      .read = read_cohere2,
      .list_layer = list_cohere2_layer,
      .harmless_keys = {"use_embedding_sharing", "use_parallel_embedding",
                        "order_of_interleaved_layers", "cache_implementation"},
  };
  return kFamily;
}

}  // namespace headrace
