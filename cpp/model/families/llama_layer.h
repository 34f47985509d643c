#pragma once

// The blocks of a Llama-like layer, by the names that most checkpoints give their tensors.

#include <memory>

#include "model/blocks/attention_block.h"
#include "model/blocks/gated_mlp.h"
#include "model/sources/model_sources.h"

namespace headrace {

/// The norms before both blocks, by Llama's names.
LayerSources list_norms(const ModelConfig& config, const LayerNaming& naming);

/// Attention with the heads, RoPE and window of the config, of no tensors yet.
std::unique_ptr<AttentionSources> plain_attention(const ModelConfig& config, int32_t layer);

/// self_attn, with the heads, biases, norms and window of the config.
std::unique_ptr<AttentionSources> list_attention(const ModelConfig& config,
                                                 const LayerNaming& naming);

/// The modules of an MLP: torch's layout has gate and up apart.
struct GatedMlpNames {
  const char* name;   ///< before "gate_up" and "down" in the decoder's names
  const char* stem;   ///< before the modules' own
  int64_t width = 0;  ///< intermediate size
  bool bias = false;
};

void list_gated_mlp(const ModelConfig& config, const LayerNaming& naming,
                    const GatedMlpNames& names, GatedMlpSources& out);

/// mlp of the config's intermediate_size.
std::unique_ptr<GatedMlpSources> list_mlp(const ModelConfig& config, const LayerNaming& naming);

}  // namespace headrace
