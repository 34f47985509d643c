#include "engine/cache/cache_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/check.h"
#include "base/env.h"

namespace headrace::internal {

namespace fs = std::filesystem;

fs::path cache_folder() {
  if (const auto folder = env_cache_folder()) return *folder;
  throw_error(ErrorCode::kInvalidArgument,
              "packed_weights is auto, but the environment names no cache folder and no home: set "
              "HEADRACE_CACHE to the path of a folder, or leave packed_weights out.");
}

void make_cache_folder(const fs::path& folder) {
  std::error_code error;
  if (folder.has_parent_path()) fs::create_directories(folder.parent_path(), error);
  if (::mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST) return;
  throw_error(ErrorCode::kIo, "cannot create ", folder.string(), ": ",
              std::generic_category().message(errno),
              ": set HEADRACE_CACHE to a folder that can be written.");
}

std::string distrust(const fs::path& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return "";
  if (status.st_uid != ::geteuid()) return str_cat("belongs to user ", status.st_uid);
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "can be written by others";
  return "";
}

}  // namespace headrace::internal
