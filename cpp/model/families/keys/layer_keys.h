#pragma once

// Keys by which layers of one model differ: windows, and which layers turn their queries and keys.

#include <cstdint>
#include <functional>
#include <optional>

#include "model/config/config_reader.h"
#include "model/config/model_config.h"

namespace headrace {

/// sliding_window: `fallback` where it is absent, nullopt where it is null.
std::optional<int32_t> read_window(ConfigReader& reader, std::optional<int32_t> fallback);

/// Gives the window to the layers that slide: those that layer_types names, or where it is absent
/// those of which `slides` is true.
void read_windows(ConfigReader& reader, std::optional<int32_t> window,
                  const std::function<bool(int32_t layer)>& slides, ModelConfig& config);

/// A rule for read_windows(): of each `period` layers, all but the last slide.
std::function<bool(int32_t)> all_but_last_of(int64_t period);

/// The function of that name under `key`.
Activation read_activation(ConfigReader& reader, const char* key, const char* fallback);

/// attention_bias, of all four linears of attention.
void read_attention_bias(ConfigReader& reader, ModelConfig& config);

/// A cap of logits: `fallback` where the key is absent, 0 (none) where it is null.
float read_cap(ConfigReader& reader, const char* key, double fallback);

/// Granite's factors on embeddings, blocks, attention and logits.
void read_granite_factors(ConfigReader& reader, ModelConfig& config);

/// Only layers with a window turn.
void turn_sliding_layers_only(ModelConfig& config);

}  // namespace headrace
