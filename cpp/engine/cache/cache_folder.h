#pragma once

// The folder that packed_weights="auto" keeps packed files in.

#include <filesystem>
#include <string>

namespace headrace::internal {

/// env_cache_folder(). It need not exist. Throws Error(kInvalidArgument) naming HEADRACE_CACHE if
/// the environment tells of none, and what env_cache_folder() throws.
std::filesystem::path cache_folder();

/// Makes the folder, for this user alone, and those above it. Throws Error(kIo).
void make_cache_folder(const std::filesystem::path& folder);

/// Why what is in a file or folder may be another user's work: "belongs to ...", "can be written
/// by ...". "" if it can't be, or if there is none.
std::string distrust(const std::filesystem::path& path);

}  // namespace headrace::internal
