#pragma once

// config.json, read as the model's family says.

#include <filesystem>
#include <string>
#include <vector>

#include "model/checkpoint/checkpoint.h"
#include "model/config/model_config.h"

namespace headrace {

/// Reads <folder>/config.json (and generation_config.json if there). Throws Error: kNotFound,
/// kCorruptFile (not JSON, a value out of range: names key and value), kUnsupported (unknown
/// model_type, or a key that changes the mathematics and is not understood).
ModelConfig load_model_config(const std::filesystem::path& folder);

/// The same from the files' texts; an empty generation_config means none.
ModelConfig parse_model_config(const std::string& config_json,
                               const std::string& generation_config_json);

/// Whether checkpoints of the config's family may have a block that guesses tokens.
bool has_mtp(const ModelConfig& config);

/// Which tensors of its checkpoints are such a block's.
MtpTensors mtp_tensors(const ModelConfig& config);

/// model_type values that load_model_config accepts.
std::vector<std::string> supported_model_types();

}  // namespace headrace
