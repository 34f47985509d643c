#include "model/families/family.h"
#include "model/families/llama_layer.h"

namespace headrace {

namespace {

// A key that changes the mathematics is read here, and so is one that must have a certain value:
// whatever is neither read nor named as harmless is an error.
void read_brook(ConfigReader& reader, ModelConfig& config) {
  const int64_t window = reader.integer("local_window", 512, 1, kMaxWindow);
  for (size_t layer = 1; layer < config.layer_window.size(); layer += 2) {
    config.layer_window[layer] = static_cast<int32_t>(window);
  }
  reader.require("logit_scale", 1.0);
}

// The names behind "model.layers.3.", and what each linear is made of.
LayerSources list_brook_layer(const ModelConfig& config, const LayerNaming& naming) {
  const int64_t hidden = config.hidden_size, wide = config.intermediate_size, d = config.head_dim;
  const int64_t q = config.num_heads * d, kv = config.num_kv_heads * d;
  LayerSources layer;
  layer.mixer_norm.weight = naming.norm("input_norm", "norm_1", hidden);
  layer.feed_forward_norm.weight = naming.norm("mlp_norm", "norm_2", hidden);
  auto attention = plain_attention(config, naming.layer());
  attention->q_norm = naming.norm("q_norm", "attn.norm_q", d);
  attention->k_norm = naming.norm("k_norm", "attn.norm_k", d);
  attention->qkv = naming.linear("qkv", {{"attn.query", q}, {"attn.key", kv}, {"attn.value", kv}},
                                 hidden, false);
  attention->o = naming.linear("o", {{"attn.out", hidden}}, q, true);
  auto mlp = std::make_unique<GatedMlpSources>();
  mlp->gate_up = naming.linear("gate_up", {{"ffn.gate", wide}, {"ffn.up", wide}}, hidden, false,
                               WeightUse::kGateUp);
  mlp->down = naming.linear("down", {{"ffn.down", hidden}}, wide, false);
  mlp->gate = config.gate;
  layer.mixer = std::move(attention);
  layer.feed_forward = std::move(mlp);
  return layer;
}

}  // namespace

const Family& brook_family() {
  static const Family kFamily{
      .model_type = "brook",
      .architectures = {"BrookForCausalLM"},
      .defaults = {.num_layers = 24, .num_kv_heads = 8, .head_dim = 64},
      .read = read_brook,
      .list_layer = list_brook_layer,
      .harmless_keys = {"dropout"},
  };
  return kFamily;
}

}  // namespace headrace
