#pragma once

// What families with Mamba-2 have in common.

#include <cstdint>
#include <memory>
#include <string>

#include "model/blocks/states/scan_block.h"
#include "model/config/config_reader.h"
#include "model/config/model_config.h"
#include "model/sources/model_sources.h"

namespace headrace {

/// What Granite and Falcon-H1 take for keys that are absent.
struct MambaDefaults {
  int32_t state_dim = 256;
  std::string columns_from;  ///< what heads together must give, for messages
};

/// mamba_n_heads, mamba_n_groups, mamba_d_state, mamba_d_head, mamba_d_conv, mamba_conv_bias and
/// time_step_limit. `columns`: heads times mamba_d_head.
void read_mamba_heads(ConfigReader& reader, int64_t columns, const MambaDefaults& defaults,
                      ModelConfig& config);

/// time_step_limit: two numbers, the second of which may be infinity.
void read_step_limits(ConfigReader& reader, ScanSpec& scan);

/// Throws Error(kCorruptFile) naming `key`, that of the number of heads, if groups don't divide it.
void check_scan_groups(ConfigReader& reader, const ScanSpec& scan, const char* key,
                       const char* groups_key);

/// The mixer of the config, whose modules are called so behind `stem` ("mamba.").
std::unique_ptr<ScanSources> list_scan(const ModelConfig& config, const LayerNaming& naming,
                                       const std::string& stem);

}  // namespace headrace
