#include "model/checkpoint/dense_folders.h"

#include <algorithm>
#include <system_error>

#include "base/check.h"
#include "base/mapped_file.h"
#include "model/json/json.h"

namespace headrace {

namespace fs = std::filesystem;

namespace {

constexpr JsonLimits kLimits{};

std::string text_of(const JsonValue& module, const char* key, const std::string& origin) {
  const JsonValue* value = module.is_object() ? module.find(key) : nullptr;
  if (value == nullptr || !value->is_string()) {
    throw_error(ErrorCode::kCorruptFile, origin, ": each module needs a text ", in_quotes(key),
                ".");
  }
  return value->text();
}

}  // namespace

std::vector<std::string> dense_folders(const fs::path& folder) {
  const fs::path file = folder / "modules.json";
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return {};
  const std::string origin = file.string();
  const JsonValue modules = parse_json(read_small_file(file, kLimits.max_bytes), origin, kLimits);
  if (!modules.is_array()) throw_error(ErrorCode::kCorruptFile, origin, " must hold a list.");
  std::vector<std::string> out;
  for (const JsonValue& module : modules.array()) {
    const std::string type = text_of(module, "type", origin);
    if (!type.ends_with(".Dense")) continue;
    const std::string path = text_of(module, "path", origin);
    const fs::path within = fs::path(path).lexically_normal();
    if (path.empty() || within.is_absolute() || *within.begin() == "..") {
      throw_error(ErrorCode::kCorruptFile, origin, ": the path ", in_quotes(path),
                  " doesn't lead into the folder.");
    }
    out.push_back(path);
  }
  return out;
}

}  // namespace headrace
