#include "text/files/gguf/gguf_file.h"

#include <filesystem>
#include <system_error>

namespace headrace::text {

bool is_gguf_path(const std::string& path) {
  std::error_code error;
  return path.ends_with(".gguf") && std::filesystem::is_regular_file(path, error);
}

}  // namespace headrace::text
