#include "model/families/family.h"

#include <algorithm>

#include "base/check.h"

namespace headrace {

const Family* find_family(std::string_view model_type) {
  const auto families = all_families();
  const auto found = std::find_if(families.begin(), families.end(), [&](const Family* family) {
    return family->model_type == model_type;
  });
  return found == families.end() ? nullptr : *found;
}

void check_head_dim(const ConfigReader& reader, const char* key, int64_t head_dim) {
  constexpr int32_t kStep = 16;
  if (head_dim % kStep == 0 && head_dim <= kLargestHead) return;
  throw_error(ErrorCode::kUnsupported, reader.origin(), ": heads of ", head_dim, " numbers (", key,
              "): this build runs multiples of ", kStep, " up to ", kLargestHead, ".");
}

std::optional<std::vector<bool>> read_layer_types(ConfigReader& reader, int32_t num_layers,
                                                  const TypeNames& special,
                                                  const TypeNames& usual) {
  const JsonValue* types = reader.find("layer_types");
  if (types == nullptr) return std::nullopt;
  if (!types->is_array() || types->size() != static_cast<size_t>(num_layers)) {
    reader.fail_value("layer_types", "must list one type for each hidden layer");
  }
  std::vector<bool> out;
  for (const JsonValue& type : types->array()) {
    const std::string_view name = type.is_string() ? std::string_view(type.text()) : "";
    const bool is_special = std::ranges::find(special, name) != special.end();
    if (!is_special && std::ranges::find(usual, name) == usual.end()) {
      reader.fail_unsupported(
          "layer_types", str_cat("this build knows ", usual.front(), " and ", special.front()));
    }
    out.push_back(is_special);
  }
  return out;
}

void require_agreeing_layer_types(ConfigReader& reader, const ModelConfig& config) {
  const auto slides = read_layer_types(reader, config.num_layers);
  if (!slides) return;
  for (size_t layer = 0; layer < slides->size(); ++layer) {
    if ((*slides)[layer] != (config.layer_window[layer] > 0)) {
      reader.fail_unsupported("layer_types", "it contradicts what this family's layers do");
    }
  }
}

void read_qwen_windows(ConfigReader& reader, ModelConfig& config) {
  const bool in_use = reader.flag("use_sliding_window", false);
  const auto window = reader.has_key("sliding_window")
                          ? reader.optional_integer("sliding_window", 1, kMaxWindow)
                          : std::optional<int64_t>(4096);
  const int64_t first = reader.integer("max_window_layers", 28, 0, kMaxWindow);
  auto slides = read_layer_types(reader, config.num_layers);
  if (!in_use || !window) return;
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    const auto i = static_cast<size_t>(layer);
    const bool sliding = slides ? (*slides)[i] : layer >= first;
    config.layer_window[i] = sliding ? static_cast<int32_t>(*window) : 0;
  }
}

}  // namespace headrace
