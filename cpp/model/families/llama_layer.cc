#include "model/families/llama_layer.h"

#include <cmath>
#include <string>
#include <vector>

#include "model/families/family.h"

namespace headrace {

LayerSources list_norms(const ModelConfig& config, const LayerNaming& naming) {
  LayerSources out;
  const int64_t hidden = config.hidden_size;
  out.mixer_norm = naming.norm("input_norm", "input_layernorm", hidden);
  out.feed_forward_norm = naming.norm("mlp_norm", "post_attention_layernorm", hidden);
  return out;
}

std::unique_ptr<AttentionSources> plain_attention(const ModelConfig& config, int32_t layer) {
  auto out = std::make_unique<AttentionSources>();
  out->attention = {.num_heads = config.num_heads,
                    .num_kv_heads = config.num_kv_heads,
                    .head_dim = config.head_dim,
                    .scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim)),
                    .window = config.layer_window[static_cast<size_t>(layer)],
                    .causal = config.causal};
  out->rope = config.rope;
  out->norm_eps = config.rms_norm_eps;
  return out;
}

std::unique_ptr<AttentionSources> list_attention(const ModelConfig& config,
                                                 const LayerNaming& naming) {
  const int64_t hidden = config.hidden_size, d = config.head_dim;
  const int64_t q = config.num_heads * d, kv = config.num_kv_heads * d;
  const std::vector<StoredPart> qkv =
      naming.paddle()
          ? std::vector<StoredPart>{{"self_attn.qkv_proj", q + 2 * kv}}
          : std::vector<StoredPart>{
                {"self_attn.q_proj", q}, {"self_attn.k_proj", kv}, {"self_attn.v_proj", kv}};
  auto out = plain_attention(config, naming.layer());
  if (config.qk_norm) {
    out->q_norm = naming.norm("q_norm", "self_attn.q_norm", d);
    out->k_norm = naming.norm("k_norm", "self_attn.k_norm", d);
  }
  out->qkv = naming.linear("qkv", qkv, hidden, config.qkv_bias);
  out->o = naming.linear("o", {{"self_attn.o_proj", hidden}}, q, config.o_bias);
  return out;
}

void list_gated_mlp(const ModelConfig& config, const LayerNaming& naming,
                    const GatedMlpNames& names, GatedMlpSources& out) {
  const std::string stem = names.stem, name = names.name;
  // up_gate_proj holds the gate first, whatever its name says.
  const std::vector<StoredPart> gate_up =
      naming.paddle() ? std::vector<StoredPart>{{stem + "up_gate_proj", 2 * names.width}}
                      : std::vector<StoredPart>{{stem + "gate_proj", names.width},
                                                {stem + "up_proj", names.width}};
  const int64_t hidden = config.hidden_size;
  out.gate_up = naming.linear(name + "gate_up", gate_up, hidden, names.bias, WeightUse::kGateUp);
  out.down = naming.linear(name + "down", {{stem + "down_proj", hidden}}, names.width, names.bias);
}

std::unique_ptr<GatedMlpSources> list_mlp(const ModelConfig& config, const LayerNaming& naming) {
  auto out = std::make_unique<GatedMlpSources>();
  list_gated_mlp(
      config, naming,
      {.name = "", .stem = "mlp.", .width = config.intermediate_size, .bias = config.mlp_bias},
      *out);
  return out;
}

LayerSources list_llama_layer(const ModelConfig& config, const LayerNaming& naming) {
  LayerSources out = list_norms(config, naming);
  out.mixer = list_attention(config, naming);
  out.feed_forward = list_mlp(config, naming);
  return out;
}

}  // namespace headrace
