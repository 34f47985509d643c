#pragma once

// What the blocks that guess tokens have around their layer, by the names of its checkpoint.

#include "model/config/model_config.h"
#include "model/sources/model_sources.h"

namespace headrace {

struct MtpNames {
  const char* embedding_norm;
  const char* hidden_norm;
  const char* join;
  const char* final_norm = nullptr;  ///< null: it has none of its own
};

/// All but the layer.
MtpSources list_mtp_block(const ModelConfig& config, const LayerNaming& naming,
                          const MtpNames& names);

/// Of a block that files hold as the layer behind the last (DeepSeek-V3's way): its names, and all
/// but the layer.
LayerNaming naming_behind(const ModelConfig& config, const TensorNaming& naming);
MtpSources list_mtp_behind(const ModelConfig& config, const LayerNaming& naming);

}  // namespace headrace
