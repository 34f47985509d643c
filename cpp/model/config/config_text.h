#pragma once

#include <filesystem>
#include <string>

namespace headrace {

/// The text of <folder>/config.json, with the object that transformers writes for infinity,
/// {"__float__": "Infinity"}, for each literal Infinity, which Python writes and JSON hasn't.
/// Throws Error: kNotFound, kIo, kCorruptFile (too long).
std::string read_config_text(const std::filesystem::path& folder);

}  // namespace headrace
