#pragma once

// The blocks of a mixture-of-experts layer, by the names of its checkpoint.

#include <optional>

#include "model/blocks/expert_block.h"
#include "model/sources/model_sources.h"

namespace headrace {

/// What a layer's modules are called behind "layers.3.".
struct ExpertNames {
  const char* gate = "mlp.gate";
  const char* experts = "mlp.experts.";  ///< before an expert's number
  const char* gate_proj = "gate_proj";   ///< null: they have none
  const char* up_proj = "up_proj";
  const char* down_proj = "down_proj";
  const char* fused_gate_up = "mlp.experts.gate_up_proj";  ///< where all are one tensor
  const char* fused_down = "mlp.experts.down_proj";
  /// Experts are fused, whatever the checkpoint's shapes say. nullopt: they say it.
  std::optional<ExpertLayout> layout = {};
  bool take_turns = false;            ///< a fused row of gate, one of up, and so on
  bool fused_biases = false;          ///< "mlp.experts.gate_up_proj_bias" and down's
  bool gate_bias = false;             ///< of the router
  const char* correction = nullptr;   ///< the whole tensor's; null: none
  bool correction_is_row = false;     ///< stored as [1, E] instead of [E]
  bool gate_transposed = false;       ///< routers are [H, E] in every layout
  const char* vision_gate = nullptr;  ///< the whole tensor's, of the experts of vision
  const char* shared =
      "mlp.shared_expert.";  ///< before its projections, with names as experts' have
  const char* shared_gate = "mlp.shared_expert_gate";
  /// Read if MoeConfig::latent_width.
  const char* latent_in = nullptr;
  const char* latent_out = nullptr;
};

/// The experts of the config. In Paddle's layout gate and up are one tensor, up_gate_proj. Experts
/// of vision are numbered behind those of text, and their correction is the second row.
std::unique_ptr<ExpertSources> list_experts(const ModelConfig& config, const LayerNaming& naming,
                                            const ExpertNames& names);

/// Whether the config says that the layer has some.
bool has_experts(const ModelConfig& config, int32_t layer);

/// The experts where it has them, else an MLP.
std::unique_ptr<FeedForwardSources> list_experts_or_mlp(const ModelConfig& config,
                                                        const LayerNaming& naming,
                                                        const ExpertNames& names);

/// A Llama-like layer with them.
LayerSources list_moe_layer(const ModelConfig& config, const LayerNaming& naming,
                            const ExpertNames& names);

}  // namespace headrace
