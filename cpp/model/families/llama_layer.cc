#include "model/families/llama_layer.h"

#include <cmath>
#include <string>
#include <vector>

#include "model/families/family.h"

namespace headrace {

NormSource list_norm(const ModelConfig& config, const LayerNaming& naming, const std::string& name,
                     const std::string& module, int64_t n) {
  NormSource out;
  out.weight = naming.norm(name, module, n);
  out.weight.offset = config.norm_offset;
  out.weight.is_float = config.norm_offset != 0.0f;  // the sum has more digits than what was stored
  if (config.norm_bias) {
    out.bias = {.name = naming.own(name + "_bias"),
                .parts = {{naming.stored(module) + ".bias", n}}};
  }
  return out;
}

LayerSources list_norms(const ModelConfig& config, const LayerNaming& naming,
                        const LayerNames& names) {
  LayerSources out;
  const auto list = [&](NormSource& norm, const char* name, const char* module) {
    if (module != nullptr) norm = list_norm(config, naming, name, module, config.hidden_size);
  };
  list(out.mixer_norm, "input_norm", names.mixer_norm);
  list(out.mixer_post_norm, "mixer_post_norm", names.mixer_post_norm);
  list(out.feed_forward_norm, "mlp_norm", names.feed_forward_norm);
  list(out.feed_forward_post_norm, "mlp_post_norm", names.feed_forward_post_norm);
  out.mixer_scale = config.residual_scale;
  out.feed_forward_scale = config.residual_scale * config.feed_forward_scale;
  out.parallel = names.parallel;
  return out;
}

std::unique_ptr<AttentionSources> plain_attention(const ModelConfig& config, int32_t layer) {
  auto out = std::make_unique<AttentionSources>();
  const LayerHeads heads = config.heads_of(layer);
  out->reads = heads.reads;
  out->attention = {.num_heads = config.num_heads,
                    .num_kv_heads = heads.num_kv_heads,
                    .head_dim = heads.head_dim,
                    .scale = config.attention_scale > 0.0f
                                 ? config.attention_scale
                                 : 1.0f / std::sqrt(static_cast<float>(heads.head_dim)),
                    .window = config.layer_window[static_cast<size_t>(layer)],
                    .causal = config.causal,
                    .soft_cap = config.attention_cap};
  out->rope_index = config.layer_rope[static_cast<size_t>(layer)];
  if (out->rope_index != kNoRope) {
    out->rope = config.ropes[static_cast<size_t>(out->rope_index)];
  }
  out->norm_eps = config.norm.eps;
  out->qk_norm = config.qk_norm_kind;
  out->v_norm = config.v_norm;
  out->q_factor = config.q_factor;
  out->gate = config.attention_gate;
  return out;
}

namespace {

/// Of q_proj with 2 d rows for each head, the queries' and the gates': d from the first on.
void append_half_heads(const ModelConfig& config, int64_t first, std::vector<StoredPart>& out) {
  const int64_t d = config.head_dim, hidden = config.hidden_size;
  for (int64_t head = 0; head < config.num_heads; ++head) {
    StoredPart& part = out.emplace_back(StoredPart{"self_attn.q_proj", d});
    part.shape = {2 * config.num_heads * d, hidden};
    part.offset = (2 * head * d + first) * hidden;
  }
}

std::vector<StoredPart> list_gated_qkv(const ModelConfig& config) {
  const int64_t d = config.head_dim, kv = config.num_kv_heads * d;
  std::vector<StoredPart> out;
  append_half_heads(config, 0, out);
  out.push_back({"self_attn.k_proj", kv});
  out.push_back({"self_attn.v_proj", kv});
  append_half_heads(config, d, out);
  return out;
}

std::vector<StoredPart> list_qkv(const ModelConfig& config, const LayerHeads& heads, bool fused) {
  if (config.attention_gate) return list_gated_qkv(config);
  const int64_t d = heads.head_dim, q = config.num_heads * d, kv = heads.num_kv_heads * d;
  if (fused) return {{"self_attn.qkv_proj", q + 2 * kv}};
  if (heads.reads >= 0) return {{"self_attn.q_proj", q}};
  const char* const v = heads.values_are_keys ? "self_attn.k_proj" : "self_attn.v_proj";
  return {{"self_attn.q_proj", q}, {"self_attn.k_proj", kv}, {v, kv}};
}

}  // namespace

std::unique_ptr<AttentionSources> list_attention(const ModelConfig& config,
                                                 const LayerNaming& naming,
                                                 const LayerNames& names) {
  const LayerHeads heads = config.heads_of(naming.layer());
  const int64_t hidden = config.hidden_size, d = heads.head_dim;
  const int64_t q = config.num_heads * d, kv = heads.num_kv_heads * d;
  const std::vector<StoredPart> qkv = list_qkv(config, heads, naming.paddle() || names.fused_qkv);
  auto out = plain_attention(config, naming.layer());
  if (config.qk_norm) {
    const bool row = config.qk_norm_kind == QkNorm::kRow;
    out->q_norm = list_norm(config, naming, "q_norm", names.q_norm, row ? q : d).weight;
    if (heads.reads < 0) {
      out->k_norm = list_norm(config, naming, "k_norm", names.k_norm, row ? kv : d).weight;
    }
  }
  out->qkv = naming.linear("qkv", qkv, hidden, config.qkv_bias);
  out->o = naming.linear("o", {{names.o, hidden}}, q, config.o_bias);
  return out;
}

GateSpec gate_of(const ModelConfig& config, const char* gate_proj) {
  return gate_proj != nullptr ? config.gate : GateSpec{.activation = Activation::kRelu2};
}

void list_gated_mlp(const ModelConfig& config, const LayerNaming& naming,
                    const GatedMlpNames& names, GatedMlpSources& out) {
  const std::string stem = names.stem, name = names.name;
  const bool gated = names.gate_proj != nullptr;
  std::vector<StoredPart> gate_up{{stem + names.up_proj, names.width}};
  if (naming.paddle()) {  // the gate first, whatever the name says
    gate_up = {{stem + "up_gate_proj", 2 * names.width}};
  } else if (names.fused) {
    gate_up = {{stem + names.gate_up_proj, 2 * names.width}};
  } else if (gated) {
    gate_up.insert(gate_up.begin(), {stem + names.gate_proj, names.width});
  }
  const int64_t hidden = config.hidden_size;
  out.gate = gate_of(config, names.gate_proj);
  out.gate_up = naming.linear(name + (gated ? "gate_up" : "up"), gate_up, hidden, names.bias,
                              gated ? WeightUse::kGateUp : WeightUse::kLinear);
  out.down =
      naming.linear(name + "down", {{stem + names.down_proj, hidden}}, names.width, names.bias);
}

std::unique_ptr<GatedMlpSources> list_mlp(const ModelConfig& config, const LayerNaming& naming,
                                          const LayerNames& names) {
  auto out = std::make_unique<GatedMlpSources>();
  list_gated_mlp(
      config, naming,
      {.name = "",
       .stem = "mlp.",
       .width = config.layer_mlp.empty() ? config.intermediate_size
                                         : config.layer_mlp[static_cast<size_t>(naming.layer())],
       .bias = config.mlp_bias,
       .fused = names.fused_gate_up},
      *out);
  return out;
}

LayerSources list_named_layer(const ModelConfig& config, const LayerNaming& naming,
                              const LayerNames& names) {
  LayerSources out = list_norms(config, naming, names);
  out.mixer = list_attention(config, naming, names);
  out.feed_forward = list_mlp(config, naming, names);
  return out;
}

LayerSources list_layer_with_norms_behind(const ModelConfig& config, const LayerNaming& naming) {
  return list_named_layer(config, naming,
                          {.mixer_norm = nullptr,
                           .mixer_post_norm = "post_attention_layernorm",
                           .feed_forward_norm = nullptr,
                           .feed_forward_post_norm = "post_feedforward_layernorm"});
}

LayerSources list_llama_layer(const ModelConfig& config, const LayerNaming& naming) {
  return list_named_layer(config, naming, {});
}

}  // namespace headrace
