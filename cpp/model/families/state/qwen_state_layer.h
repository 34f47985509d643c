#pragma once

// What Qwen3-Next and Qwen3.5 have in common: layers with the gated delta rule between layers of
// attention with a gate.

#include <vector>

#include "model/config/config_reader.h"
#include "model/config/model_config.h"
#include "model/sources/model_sources.h"

namespace headrace {

/// Reads what both families' layers are like.
void read_qwen_state_keys(ConfigReader& reader, ModelConfig& config);

/// The experts, and an MLP with a gate that all rows share.
void read_qwen_experts(ConfigReader& reader, int32_t num_experts, int32_t top_k,
                       ModelConfig& config);

/// The stored rows of a layer with a state.
struct DeltaParts {
  std::vector<StoredPart> in;     ///< q, k, v, z of all heads
  std::vector<StoredPart> gates;  ///< b, a
};

/// A layer with these rows, or with attention, as the config says.
LayerSources list_qwen_state_layer(const ModelConfig& config, const LayerNaming& naming,
                                   const DeltaParts& parts);

/// A layer of attention with what the model has behind it, experts or an MLP. Its names don't begin
/// as the model's.
MtpSources list_qwen_mtp(const ModelConfig& config, const TensorNaming& naming);

}  // namespace headrace
