#pragma once

// The tower of Qwen3-VL and Qwen3.5: absolute positions that are resampled, and blocks that may
// give rows that are added behind the decoder's first layers (deepstack).

#include <cstdint>
#include <vector>

#include "model/config/config_reader.h"
#include "model/config/model_config.h"
#include "model/sources/vision_sources.h"

namespace headrace {

/// vision_config, beside a decoder whose shape is known. `usual_deepstack`: the blocks that give
/// more rows where deepstack_visual_indexes is absent; those that a tower hasn't are left out.
VisionConfig read_qwen3_tower(ConfigReader& reader, const ModelConfig& config,
                              const std::vector<int32_t>& usual_deepstack);

VisionSources list_qwen3_tower(const ModelConfig& config, const TensorNaming& names);

}  // namespace headrace
