#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace headrace {

/// The folders, within a model's, of the Dense modules that sentence-transformers puts behind
/// pooling, as modules.json lists them; none without that file. Throws Error(kCorruptFile).
std::vector<std::string> dense_folders(const std::filesystem::path& folder);

}  // namespace headrace
