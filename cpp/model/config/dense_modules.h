#pragma once

#include <filesystem>
#include <vector>

#include "model/config/model_config.h"

namespace headrace {

/// The Dense modules of dense_folders(), by their config.json. Throws Error(kNotFound),
/// Error(kCorruptFile) and Error(kUnsupported) naming file and key.
std::vector<HeadLayer> read_dense_modules(const std::filesystem::path& folder);

}  // namespace headrace
