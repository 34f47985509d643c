#include "model/config/config_text.h"

#include <system_error>

#include "base/check.h"
#include "model/checkpoint/mapped_file.h"
#include "model/config/config_reader.h"

namespace headrace {

std::string read_config_text(const std::filesystem::path& folder) {
  if (folder.empty()) {
    throw_error(ErrorCode::kInvalidArgument, "the path of the model's folder is empty.");
  }
  const auto path = folder / "config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw_error(ErrorCode::kNotFound, folder.string(), " has no config.json: pass the folder of a ",
                "model as it is published, with config.json and *.safetensors.");
  }
  return read_small_file(path, kConfigLimits.max_bytes);
}

}  // namespace headrace
