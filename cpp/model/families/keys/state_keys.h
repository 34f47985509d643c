#pragma once

// Keys of families some of whose layers keep a state.

#include <cstdint>
#include <functional>
#include <string_view>

#include "model/config/config_reader.h"
#include "model/config/model_config.h"
#include "model/families/family.h"

namespace headrace {

/// The layers with a state: those that layer_types calls by one of the names, or where it is absent
/// those of which `keeps` is true. Throws Error(kUnsupported) where no layer has attention.
void read_state_layers(ConfigReader& reader, const TypeNames& names,
                       const std::function<bool(int32_t layer)>& keeps, ModelConfig& config);

/// Numbers of a head's state, in one direction.
int32_t read_state_dim(ConfigReader& reader, std::string_view key, int32_t fallback);

/// How many heads, or groups of them, a layer with a state has.
int32_t read_state_heads(ConfigReader& reader, std::string_view key, int32_t fallback);

/// Rows of a convolution over time.
int32_t read_conv_kernel(ConfigReader& reader, std::string_view key, int32_t fallback);

}  // namespace headrace
