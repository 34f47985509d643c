#pragma once

#include <filesystem>
#include <string>

namespace headrace {

/// The text of <folder>/config.json. Throws Error: kNotFound, kIo, kCorruptFile (too long).
std::string read_config_text(const std::filesystem::path& folder);

}  // namespace headrace
