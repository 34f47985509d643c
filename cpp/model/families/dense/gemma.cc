// Gemma 2 and the text models of Gemma 3, EmbeddingGemma among them, which looks both ways.

#include <cmath>

#include "model/families/family.h"
#include "model/families/keys/layer_keys.h"
#include "model/families/llama_layer.h"

namespace headrace {

namespace {

/// What both generations have.
void read_gemma(ConfigReader& reader, ModelConfig& config) {
  config.norm_offset = 1.0f;
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  const double scalar = reader.number("query_pre_attn_scalar", 256.0, 1e-3, 1e6);
  config.attention_scale = static_cast<float>(1.0 / std::sqrt(scalar));
  read_attention_bias(reader, config);
}

void read_gemma2(ConfigReader& reader, ModelConfig& config) {
  read_gemma(reader, config);
  reader.require("use_bidirectional_attention", false);
  config.attention_cap = read_cap(reader, "attn_logit_softcapping", 50.0);
  config.logit_cap = read_cap(reader, "final_logit_softcapping", 30.0);
  read_windows(reader, read_window(reader, 4096), all_but_last_of(2), config);
}

// Published models have other windows than the default of transformers' class.
void read_gemma3(ConfigReader& reader, ModelConfig& config) {
  read_gemma(reader, config);
  config.qk_norm = true;
  reader.require("attn_logit_softcapping", JsonValue());
  config.logit_cap = read_cap(reader, "final_logit_softcapping", 0.0);
  if (!reader.has_key("sliding_window")) {
    reader.fail_value("sliding_window", "must be the window of the layers that slide");
  }
  const int64_t period = reader.integer("sliding_window_pattern", 6, 1, kMaxWindow);
  std::optional<int32_t> window = read_window(reader, {});
  config.causal = !reader.flag("use_bidirectional_attention", false);
  if (!config.causal && window) *window = *window / 2 + 1;  // half of it to each side
  read_windows(reader, window, all_but_last_of(period), config);
}

LayerSources list_gemma_layer(const ModelConfig& config, const LayerNaming& naming) {
  return list_named_layer(config, naming,
                          {.mixer_post_norm = "post_attention_layernorm",
                           .feed_forward_norm = "pre_feedforward_layernorm",
                           .feed_forward_post_norm = "post_feedforward_layernorm"});
}

constexpr FamilyDefaults kDefaults{.vocab_size = 256000,
                                   .hidden_size = 2304,
                                   .intermediate_size = 9216,
                                   .num_layers = 26,
                                   .num_heads = 8,
                                   .num_kv_heads = 4,
                                   .head_dim = 256,
                                   .max_position_embeddings = 8192,
                                   .tie_word_embeddings = true,
                                   .activation_key = "hidden_activation",
                                   .activation = "gelu_pytorch_tanh"};

}  // namespace

const Family& gemma2_family() {
  static const Family kFamily{
      .model_type = "gemma2",
      .architectures = {"Gemma2ForCausalLM"},
      .defaults = kDefaults,
      .read = read_gemma2,
      .list_layer = list_gemma_layer,
      .harmless_keys = {"hidden_act", "cache_implementation"},
  };
  return kFamily;
}

const Family& gemma3_text_family() {
  static const Family kFamily{
      .model_type = "gemma3_text",
      .architectures = {"Gemma3ForCausalLM", "Gemma3TextModel"},
      .defaults =
          [] {
            FamilyDefaults out = kDefaults;
            out.vocab_size = 262208;
            out.max_position_embeddings = 131072;
            out.rope_theta = 1e6;
            return out;
          }(),
      .sliding_rope = SlidingRope{1e4, "rope_local_base_freq"},
      .read = read_gemma3,
      .list_layer = list_gemma_layer,
      .harmless_keys = {"hidden_act", "cache_implementation", "_sliding_window_pattern"},
  };
  return kFamily;
}

}  // namespace headrace
