#pragma once

// What families with latent attention have in common: DeepSeek-V2's keys and modules.

#include <memory>

#include "model/blocks/latent/latent_block.h"
#include "model/families/family.h"
#include "model/families/moe_layer.h"

namespace headrace {

/// What transformers takes for keys that a config.json leaves out.
struct LatentDefaults {
  int32_t q_rank, rank, nope_dim, rope_dim, value_dim;
};

/// q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim, attention_bias.
void read_latent(ConfigReader& reader, const LatentDefaults& defaults, ModelConfig& config);

/// Likewise of experts that a row chooses by sigmoids.
struct LatentExpertDefaults {
  int32_t dense_layers, experts, top_k, width, shared;
  int32_t groups, top_groups;
  float scale;
};

/// first_k_dense_replace and the keys of experts (the noaux_tc way, DeepSeek-V3).
void read_latent_experts(ConfigReader& reader, const LatentExpertDefaults& defaults,
                         ModelConfig& config);

/// self_attn, as the config says.
std::unique_ptr<LatentSources> list_latent(const ModelConfig& config, const LayerNaming& naming);

/// A layer of it and of experts, or an MLP, with Llama's norms.
LayerSources list_latent_layer(const ModelConfig& config, const LayerNaming& naming,
                               const ExpertNames& names);

/// Those of families with read_latent_experts().
LayerSources list_latent_expert_layer(const ModelConfig& config, const LayerNaming& naming);
/// Their MTP block: a layer behind the last, with experts. The model's embedding and head are there
/// once more.
MtpSources list_latent_mtp(const ModelConfig& config, const TensorNaming& naming);

const Family& deepseek_v2_family();
const Family& deepseek_v3_family();
const Family& glm4_moe_lite_family();

}  // namespace headrace
