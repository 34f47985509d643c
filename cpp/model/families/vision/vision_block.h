#pragma once

// What the blocks of several families' towers have in common.

#include "model/config/vision_config.h"
#include "model/sources/vision_sources.h"

namespace headrace {

/// Norms and attention of a block that calls them norm1, norm2, attn.qkv (queries, keys and values
/// in one tensor [3 W, W], with bias) and attn.proj. `up` and `down` are left empty.
VisionBlockSources list_fused_attention(const VisionConfig& config, const VisionNaming& naming);

}  // namespace headrace
