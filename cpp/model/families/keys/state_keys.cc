#include "model/families/keys/state_keys.h"

#include <algorithm>

#include "base/check.h"

namespace headrace {

void read_state_layers(ConfigReader& reader, const TypeNames& names,
                       const std::function<bool(int32_t layer)>& keeps, ModelConfig& config) {
  const auto types =
      read_layer_types(reader, config.num_layers, names, {"full_attention", "attention"});
  std::vector<bool> layers;
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    layers.push_back(types ? (*types)[static_cast<size_t>(layer)] : keeps(layer));
  }
  if (std::ranges::find(layers, false) == layers.end()) {
    reader.fail_unsupported("layer_types", "this build runs models with attention in some layer");
  }
  if (std::ranges::find(layers, true) != layers.end()) config.state.layers = std::move(layers);
}

int32_t read_state_dim(ConfigReader& reader, std::string_view key, int32_t fallback) {
  constexpr int64_t kStep = 8;
  const int64_t out = reader.integer(key, fallback, 1, int64_t{1} << 20);
  if (out % kStep != 0 || out > kLargestStateDim) {
    reader.fail_unsupported(
        key, str_cat("this build runs multiples of ", kStep, " up to ", kLargestStateDim));
  }
  return static_cast<int32_t>(out);
}

int32_t read_state_heads(ConfigReader& reader, std::string_view key, int32_t fallback) {
  constexpr int64_t kMost = 4096;
  return static_cast<int32_t>(reader.integer(key, fallback, 1, kMost));
}

int32_t read_conv_kernel(ConfigReader& reader, std::string_view key, int32_t fallback) {
  const int64_t out = reader.integer(key, fallback, 1, int64_t{1} << 20);
  if (out < 2 || out > kLargestConv) {
    reader.fail_unsupported(
        key, str_cat("this build runs convolutions of 2 to ", kLargestConv, " rows"));
  }
  return static_cast<int32_t>(out);
}

}  // namespace headrace
