// The text models of Gemma 4: heads of two sizes, layers that read the keys and values of others,
// and numbers of each token for each layer.

#include <cmath>
#include <string>

#include "model/blocks/per_layer_block.h"
#include "model/families/family.h"
#include "model/families/keys/expert_keys.h"
#include "model/families/keys/layer_keys.h"
#include "model/families/llama_layer.h"
#include "model/families/moe_layer.h"

namespace headrace {

namespace {

/// Of layers without a window.
LayerHeads read_full_heads(ConfigReader& reader, const ModelConfig& config) {
  LayerHeads out{config.num_kv_heads, config.head_dim};
  out.values_are_keys = reader.flag("attention_k_eq_v", false);
  out.head_dim = static_cast<int32_t>(reader.integer("global_head_dim", 512, 1, kLargestHead));
  const auto kv_heads = reader.optional_integer("num_global_key_value_heads", 1, kMaxHeads);
  if (kv_heads && out.values_are_keys) out.num_kv_heads = static_cast<int32_t>(*kv_heads);
  return out;
}

/// per_layer_config, in which newer files have what differs from layer to layer: it must be the
/// heads of each layer without a window, all of one size.
void read_layer_heads(ConfigReader& reader, const ModelConfig& config, LayerHeads& full) {
  const JsonValue* const layers = reader.find("per_layer_config");
  if (layers == nullptr || layers->empty()) return;
  if (!layers->is_object()) reader.fail_value("per_layer_config", "must be an object");
  const char* const expected = "must have the heads of the layers without a window, all alike";
  bool first = true;
  size_t listed = 0;
  for (size_t i = 0; i < config.layer_window.size(); ++i) {
    if (config.layer_window[i] > 0) continue;
    const std::string key = std::to_string(i);
    if (!layers->contains(key)) reader.fail_unsupported("per_layer_config", expected);
    ++listed;
    const JsonValue& value = layers->object().at(key);
    if (!value.is_object()) reader.fail_value("per_layer_config", "must have objects");
    ConfigReader layer(value, reader.origin() + ": per_layer_config: " + key);
    LayerHeads own = full;
    own.head_dim =
        static_cast<int32_t>(layer.integer("head_dim", config.head_dim, 1, kLargestHead));
    own.num_kv_heads = static_cast<int32_t>(
        layer.integer("num_key_value_heads", config.num_kv_heads, 1, kMaxHeads));
    layer.refuse_unknown_keys({});
    const bool alike = own.head_dim == full.head_dim && own.num_kv_heads == full.num_kv_heads;
    if (!first && !alike) reader.fail_unsupported("per_layer_config", expected);
    first = false;
    full = own;
  }
  if (listed != layers->size()) reader.fail_unsupported("per_layer_config", expected);
}

void read_heads(ConfigReader& reader, ModelConfig& config) {
  LayerHeads full = read_full_heads(reader, config);
  read_layer_heads(reader, config, full);
  check_head_dim(reader, "global_head_dim", full.head_dim);
  if (config.num_heads % full.num_kv_heads != 0) {
    reader.fail_value("num_global_key_value_heads", "must divide num_attention_heads");
  }
  for (const int32_t window : config.layer_window) {
    config.layer_heads.push_back(window > 0 ? LayerHeads{config.num_kv_heads, config.head_dim}
                                            : full);
  }
}

/// The last layers read the keys and values of the last layer of their kind before them.
void read_shared_layers(ConfigReader& reader, ModelConfig& config) {
  const auto shared =
      static_cast<int32_t>(reader.integer("num_kv_shared_layers", 0, 0, config.num_layers - 1));
  const bool wide = reader.flag("use_double_wide_mlp", false);
  config.layer_mlp.assign(static_cast<size_t>(config.num_layers), config.intermediate_size);
  const int32_t own = config.num_layers - shared;
  for (int32_t layer = own; layer < config.num_layers; ++layer) {
    const auto i = static_cast<size_t>(layer);
    int32_t from = own - 1;
    const auto window = [&config](int32_t l) {
      return config.layer_window[static_cast<size_t>(l)];
    };
    while (from >= 0 && (window(from) > 0) != (window(layer) > 0)) --from;
    if (from < 0) {
      reader.fail_value("num_kv_shared_layers",
                        "must leave a layer of each kind that isn't shared");
    }
    config.layer_heads[i].reads = from;
    if (wide) config.layer_mlp[i] = 2 * config.intermediate_size;
  }
}

void read_per_layer_inputs(ConfigReader& reader, ModelConfig& config) {
  constexpr int64_t kMostNumbers = 1 << 16, kMaxVocab = int64_t{1} << 31;
  config.per_layer_input =
      static_cast<int32_t>(reader.optional_integer("hidden_size_per_layer_input", 0, kMostNumbers)
                               .value_or(reader.has_key("hidden_size_per_layer_input") ? 0 : 256));
  const int64_t vocab =
      reader.optional_integer("vocab_size_per_layer_input", 1, kMaxVocab - 1).value_or(262144);
  if (config.per_layer_input > 0 && vocab < config.vocab_size) {
    reader.fail_value("vocab_size_per_layer_input", "must not be below vocab_size");
  }
  config.per_layer_vocab = static_cast<int32_t>(vocab);
}

/// Experts beside the MLP of every layer. Without enable_moe_block their keys mean nothing.
void read_experts(ConfigReader& reader, ModelConfig& config) {
  if (!reader.flag("enable_moe_block", false)) {
    for (const char* key : {"num_experts", "top_k_experts", "moe_intermediate_size"}) {
      reader.find(key);
    }
    return;
  }
  for (const char* key : {"num_experts", "top_k_experts", "moe_intermediate_size"}) {
    if (!reader.has_key(key)) reader.fail_value(key, "must be a number");
  }
  read_expert_counts(reader, {{"num_experts"}, 0}, {{"top_k_experts"}, 0}, config);
  config.moe.expert_width = read_width(reader, "moe_intermediate_size", 0);
}

void read_gemma4(ConfigReader& reader, ModelConfig& config) {
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  config.attention_scale = 1.0f;
  config.qk_norm = config.v_norm = config.layer_scalars = true;
  read_attention_bias(reader, config);
  config.logit_cap = read_cap(reader, "final_logit_softcapping", 0.0);
  // Of pictures; without them it means nothing.
  if (reader.text("use_bidirectional_attention", "vision") != "vision") {
    reader.fail_unsupported("use_bidirectional_attention", "attention is causal");
  }
  constexpr int64_t kPeriod = 6;
  read_windows(reader, read_window(reader, 512), all_but_last_of(kPeriod), config);
  config.layer_window.back() = 0;
  read_heads(reader, config);
  read_shared_layers(reader, config);
  read_per_layer_inputs(reader, config);
  read_experts(reader, config);
}

std::unique_ptr<PerLayerSources> list_per_layer_block(const ModelConfig& config,
                                                      const LayerNaming& naming) {
  auto out = std::make_unique<PerLayerSources>();
  const int64_t hidden = config.hidden_size, size = config.per_layer_input;
  out->gate = naming.linear("per_layer_gate", {{"per_layer_input_gate", size}}, hidden, false);
  out->projection =
      naming.linear("per_layer_projection", {{"per_layer_projection", hidden}}, size, false);
  out->activation = config.gate.activation;
  out->layer = naming.layer();
  return out;
}

/// What experts add to a layer's MLP.
std::unique_ptr<ExpertSources> list_experts_beside(const ModelConfig& config,
                                                   const LayerNaming& naming) {
  auto out = list_experts(config, naming,
                          {.gate = "router.proj",
                           .fused_gate_up = "experts.gate_up_proj",
                           .fused_down = "experts.down_proj",
                           .layout = ExpertLayout::kFused});
  out->experts.factors = {
      .name = naming.own("router_factors"),
      .parts = {{naming.stored("router.per_expert_scale"), config.moe.router.num_experts}},
      .is_float = true};
  out->shared = list_mlp(config, naming);
  const auto norm = [&](const char* name, const char* module) {
    return list_norm(config, naming, name, module, config.hidden_size).weight;
  };
  out->norms.router = {.name = naming.own("router_norm"),
                       .parts = {{naming.stored("router.scale"), config.hidden_size}},
                       .is_norm = true};
  out->norms.router_scale = 1.0f / std::sqrt(static_cast<float>(config.hidden_size));
  out->norms.experts = norm("experts_norm", "pre_feedforward_layernorm_2");
  out->norms.experts_post = norm("experts_post_norm", "post_feedforward_layernorm_2");
  out->norms.shared_post = norm("shared_post_norm", "post_feedforward_layernorm_1");
  return out;
}

LayerSources list_gemma4_layer(const ModelConfig& config, const LayerNaming& naming) {
  LayerSources out = list_named_layer(config, naming,
                                      {.mixer_post_norm = "post_attention_layernorm",
                                       .feed_forward_norm = "pre_feedforward_layernorm",
                                       .feed_forward_post_norm = "post_feedforward_layernorm"});
  if (config.moe.router.num_experts > 0) out.feed_forward = list_experts_beside(config, naming);
  if (config.per_layer_input > 0) {
    out.last = list_per_layer_block(config, naming);
    out.last_post_norm = list_norm(config, naming, "per_layer_post_norm",
                                   "post_per_layer_input_norm", config.hidden_size);
  }
  out.scalar = {.name = naming.own("scalar"),
                .parts = {{naming.stored("layer_scalar"), 1}},
                .is_float = true};
  if (config.heads_of(naming.layer()).reads >= 0) {
    for (const char* module : {"k_proj", "v_proj", "k_norm"}) {
      out.ignored.push_back(naming.stored("self_attn.") + module);
    }
  }
  return out;
}

PerLayerInputSources list_gemma4_inputs(const ModelConfig& config, const TensorNaming& naming) {
  const int64_t size = config.per_layer_input, all = config.num_layers * size;
  return {.table = {.name = "per_layer_table",
                    .parts = {{naming.prefix + "embed_tokens_per_layer.weight",
                               config.per_layer_vocab}},
                    .k = all,
                    .use = WeightUse::kEmbedding,
                    .role = MatrixRole::kVocabulary,
                    .stays_mapped = true},
          .projection = {.name = "per_layer_model_projection",
                         .parts = {{naming.prefix + "per_layer_model_projection.weight", all}},
                         .k = config.hidden_size},
          .norm = {.name = "per_layer_norm",
                   .parts = {{naming.prefix + "per_layer_projection_norm.weight", size}},
                   .is_norm = true}};
}

/// What transformers takes for layers without a window where a config has no rope_parameters.
const JsonValue& usual_full_rope() {
  static const JsonValue kRope{JsonValue::Object{
      {"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}, {"rope_theta", 1e6}}};
  return kRope;
}

}  // namespace

const Family& gemma4_text_family() {
  static const Family kFamily{
      .model_type = "gemma4_text",
      .architectures = {"Gemma4ForCausalLM"},
      .defaults = {.vocab_size = 262144,
                   .hidden_size = 2304,
                   .intermediate_size = 9216,
                   .num_layers = 30,
                   .num_heads = 8,
                   .num_kv_heads = 4,
                   .head_dim = 256,
                   .max_position_embeddings = 131072,
                   .rope_theta = 1e6,
                   .tie_word_embeddings = true,
                   .activation_key = "hidden_activation",
                   .activation = "gelu_pytorch_tanh"},
      .rope = {.usual = &usual_full_rope(), .proportional = true},
      .sliding_rope = SlidingRope{1e4, nullptr},
      .read = read_gemma4,
      .list_layer = list_gemma4_layer,
      .list_per_layer = list_gemma4_inputs,
      .harmless_keys = with_router_training_keys({"cache_implementation"}),
  };
  return kFamily;
}

}  // namespace headrace
