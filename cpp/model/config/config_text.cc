#include "model/config/config_text.h"

#include <string_view>
#include <system_error>

#include "base/check.h"
#include "base/mapped_file.h"
#include "model/config/config_reader.h"

namespace headrace {

namespace {

std::string without_infinities(std::string_view json) {
  constexpr std::string_view kLiteral = "Infinity", kObject = R"({"__float__": "Infinity"})";
  std::string out;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '"') in_string = !in_string;
    if (!in_string && json.substr(i).starts_with(kLiteral)) {
      out += kObject;
      i += kLiteral.size() - 1;
      continue;
    }
    out += json[i];
    if (in_string && json[i] == '\\' && i + 1 < json.size()) out += json[++i];
  }
  return out;
}

}  // namespace

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
  return without_infinities(read_small_file(path, kConfigLimits.max_bytes));
}

}  // namespace headrace
