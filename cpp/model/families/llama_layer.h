#pragma once

// The blocks of a Llama-like layer, by the names that most checkpoints give their tensors, or by
// others.

#include <memory>
#include <string>

#include "model/blocks/attention_block.h"
#include "model/blocks/gated_mlp.h"
#include "model/sources/model_sources.h"

namespace headrace {

/// Modules of a layer that families name differently, or don't have (null); Llama's.
struct LayerNames {
  const char* mixer_norm = "input_layernorm";
  const char* mixer_post_norm = nullptr;
  const char* feed_forward_norm = "post_attention_layernorm";
  const char* feed_forward_post_norm = nullptr;
  const char* q_norm = "self_attn.q_norm";  ///< read if ModelConfig::qk_norm
  const char* k_norm = "self_attn.k_norm";
  const char* o = "self_attn.o_proj";
  bool fused_qkv = false;      ///< self_attn.qkv_proj has the rows of q, k and v
  bool fused_gate_up = false;  ///< mlp.gate_up_proj has the rows of gate and up
  bool parallel = false;       ///< LayerSources::parallel
};

/// A layer of attention and an MLP as the config's flags say.
LayerSources list_named_layer(const ModelConfig& config, const LayerNaming& naming,
                              const LayerNames& names);

/// The same, with Llama's names but norms behind the blocks alone (OLMo 2).
LayerSources list_layer_with_norms_behind(const ModelConfig& config, const LayerNaming& naming);

/// A norm of the model's kind.
NormSource list_norm(const ModelConfig& config, const LayerNaming& naming, const std::string& name,
                     const std::string& module, int64_t n);

/// The norms of both blocks, and their scale.
LayerSources list_norms(const ModelConfig& config, const LayerNaming& naming,
                        const LayerNames& names = {});

/// Attention with the heads, RoPE and window of the config, of no tensors yet.
std::unique_ptr<AttentionSources> plain_attention(const ModelConfig& config, int32_t layer);

/// self_attn, with the heads, biases, norms, window and gate of the config.
std::unique_ptr<AttentionSources> list_attention(const ModelConfig& config,
                                                 const LayerNaming& naming,
                                                 const LayerNames& names = {});

/// The modules of an MLP: torch's layout has gate and up apart.
struct GatedMlpNames {
  const char* name;   ///< before "gate_up" and "down" in the decoder's names
  const char* stem;   ///< before the modules' own
  int64_t width = 0;  ///< intermediate size
  bool bias = false;
  bool fused = false;  ///< one module has the rows of gate and up
  const char* gate_up_proj = "gate_up_proj";
  const char* gate_proj = "gate_proj";  ///< null: it has none
  const char* up_proj = "up_proj";
  const char* down_proj = "down_proj";
};

/// Of an MLP, or of experts, with that module: without one relu^2.
GateSpec gate_of(const ModelConfig& config, const char* gate_proj);

void list_gated_mlp(const ModelConfig& config, const LayerNaming& naming,
                    const GatedMlpNames& names, GatedMlpSources& out);

/// mlp of the config's intermediate_size.
std::unique_ptr<GatedMlpSources> list_mlp(const ModelConfig& config, const LayerNaming& naming,
                                          const LayerNames& names = {});

}  // namespace headrace
