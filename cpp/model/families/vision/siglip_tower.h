#pragma once

// SigLIP as a tower: plain blocks with layer norms, positions of a square table, a norm behind.

#include "model/config/config_reader.h"
#include "model/families/vision/vision_keys.h"
#include "model/sources/vision_sources.h"

namespace headrace {

/// What vision_config says of it, image_size as the side of the table of positions. `keys`: what
/// its class takes where sizes are missing.
void read_siglip_tower(ConfigReader& reader, TowerKeys keys, VisionConfig& out);

/// All but the mergers.
VisionSources list_siglip_tower(const VisionConfig& config, const VisionNaming& naming);

}  // namespace headrace
