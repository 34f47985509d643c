#include "model/families/latent/latent_layer.h"

#include <cmath>
#include <utility>

#include "model/families/keys/expert_keys.h"
#include "model/families/keys/layer_keys.h"
#include "model/families/llama_layer.h"
#include "model/families/mtp_layer.h"

namespace headrace {

namespace {

constexpr int64_t kMostNumbers = 1 << 16;

/// The norms within attention have this one, whatever rms_norm_eps says.
constexpr float kInnerEps = 1e-6f;

constexpr ExpertNames kNames{.correction = "mlp.gate.e_score_correction_bias",
                             .shared = "mlp.shared_experts."};

/// nq matrices [rows, cols] of kv_b_proj [nq (Dn + Dv), R]: of each head the rows from `first` on,
/// or, transposed, the columns that they are.
MatrixSource list_up(const ModelConfig& config, const LayerNaming& naming, const char* name,
                     int64_t first, int64_t count, bool transposed) {
  const LatentConfig& latent = config.latent;
  const int64_t each = int64_t{latent.nope_dim} + latent.value_dim;
  MatrixSource out;
  out.name = naming.own(name);
  for (int64_t head = 0; head < config.num_heads; ++head) {
    StoredPart& part = out.parts.emplace_back();
    part.name = naming.stored("self_attn.kv_b_proj.weight");
    part.n = transposed ? latent.rank : count;
    part.shape = {config.num_heads * each, latent.rank};
    part.offset = (head * each + first) * latent.rank;
  }
  out.k = transposed ? count : latent.rank;
  out.transposed = transposed;
  out.role = MatrixRole::kGates;
  out.experts = out.active_experts = config.num_heads;
  return out;
}

}  // namespace

void read_latent(ConfigReader& reader, const LatentDefaults& defaults, ModelConfig& config) {
  const auto size = [&](const char* key, int32_t fallback) {
    return static_cast<int32_t>(reader.integer(key, fallback, 1, kMostNumbers));
  };
  LatentConfig& latent = config.latent;
  const bool has_q_rank = reader.has_key("q_lora_rank");
  latent.q_rank = static_cast<int32_t>(reader.optional_integer("q_lora_rank", 1, kMostNumbers)
                                           .value_or(has_q_rank ? 0 : defaults.q_rank));
  latent.rank = size("kv_lora_rank", defaults.rank);
  latent.nope_dim = size("qk_nope_head_dim", defaults.nope_dim);
  latent.rope_dim = size("qk_rope_head_dim", defaults.rope_dim);
  latent.value_dim = size("v_head_dim", defaults.value_dim);
  if (latent.rope_dim % 2 != 0 || latent.rope_dim < 4) {
    reader.fail_value("qk_rope_head_dim", "must be even, 4 or more");
  }
  if (latent.row_dim() > kLargestLatent) {
    throw_error(ErrorCode::kUnsupported, reader.origin(), ": rows of ", latent.row_dim(),
                " numbers (kv_lora_rank and qk_rope_head_dim): this build runs latent rows up to ",
                kLargestLatent, ".");
  }
  reader.find("head_dim");  // one part of a head or another
  reader.find("qk_head_dim");
  read_attention_bias(reader, config);
  config.head_dim = latent.rope_dim;
}

void read_latent_experts(ConfigReader& reader, const LatentExpertDefaults& defaults,
                         ModelConfig& config) {
  MoeConfig& moe = config.moe;
  read_expert_counts(reader, {{"n_routed_experts", "num_local_experts"}, defaults.experts},
                     {{"num_experts_per_tok"}, defaults.top_k}, config);
  read_dense_layers(reader, defaults.dense_layers, config);
  moe.expert_width = read_width(reader, "moe_intermediate_size", defaults.width);
  read_shared_experts(reader, "n_shared_experts", defaults.shared, moe);
  moe.has_correction = true;
  reader.require("scoring_func", "sigmoid");
  reader.require("topk_method", "noaux_tc");
  read_sigmoid_router(reader, moe.router);
  if (!reader.has_key("routed_scaling_factor")) moe.router.scale = defaults.scale;
  moe.router.norm_eps = 1e-20f;
  read_expert_groups(reader, moe.router, {defaults.groups, defaults.top_groups});
}

std::unique_ptr<LatentSources> list_latent(const ModelConfig& config, const LayerNaming& naming) {
  const LatentConfig& latent = config.latent;
  const int64_t hidden = config.hidden_size, heads = config.num_heads;
  const int64_t q = heads * (int64_t{latent.nope_dim} + latent.rope_dim);
  auto out = std::make_unique<LatentSources>();
  out->spec = {.num_heads = config.num_heads,
               .rank = latent.rank,
               .nope_dim = latent.nope_dim,
               .rope_dim = latent.rope_dim,
               .norm = {},
               .norm_eps = kInnerEps};
  out->scale = config.attention_scale;
  out->value_dim = latent.value_dim;
  out->rope = config.ropes.front();
  const auto norm = [&](const char* name, const char* module, int64_t n) {
    return list_norm(config, naming, name, module, n).weight;
  };
  if (latent.q_rank > 0) {
    out->q_down =
        naming.linear("q_down", {{"self_attn.q_a_proj", latent.q_rank}}, hidden, config.qkv_bias);
    out->q_norm = norm("q_norm", "self_attn.q_a_layernorm", latent.q_rank);
    out->q = naming.linear("q", {{"self_attn.q_b_proj", q}}, latent.q_rank, false);
  } else {
    out->q = naming.linear("q", {{"self_attn.q_proj", q}}, hidden, false);
  }
  out->kv_down = naming.linear(
      "kv_down", {{"self_attn.kv_a_proj_with_mqa", int64_t{latent.rank} + latent.rope_dim}}, hidden,
      config.qkv_bias);
  out->kv_norm = norm("kv_norm", "self_attn.kv_a_layernorm", latent.rank);
  out->key_up = list_up(config, naming, "key_up", 0, latent.nope_dim, true);
  out->value_up = list_up(config, naming, "value_up", latent.nope_dim, latent.value_dim, false);
  out->o =
      naming.linear("o", {{"self_attn.o_proj", hidden}}, heads * latent.value_dim, config.o_bias);
  return out;
}

LayerSources list_latent_layer(const ModelConfig& config, const LayerNaming& naming,
                               const ExpertNames& names) {
  LayerSources out = list_norms(config, naming);
  out.mixer = list_latent(config, naming);
  out.feed_forward = list_experts_or_mlp(config, naming, names);
  return out;
}

LayerSources list_latent_expert_layer(const ModelConfig& config, const LayerNaming& naming) {
  return list_latent_layer(config, naming, kNames);
}

MtpSources list_latent_mtp(const ModelConfig& config, const TensorNaming& naming) {
  const LayerNaming layer = naming_behind(config, naming);
  MtpSources out = list_mtp_behind(config, layer);
  out.layer = list_norms(config, layer);
  out.layer.mixer = list_latent(config, layer);
  out.layer.feed_forward = list_experts(config, layer, kNames);
  return out;
}

}  // namespace headrace
