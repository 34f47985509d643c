#include "model/families/keys/layer_keys.h"

#include <utility>

#include "model/families/family.h"

namespace headrace {

std::optional<int32_t> read_window(ConfigReader& reader, std::optional<int32_t> fallback) {
  if (!reader.has_key("sliding_window")) return fallback;
  const auto window = reader.optional_integer("sliding_window", 1, kMaxWindow);
  return window ? std::optional(static_cast<int32_t>(*window)) : std::nullopt;
}

void read_windows(ConfigReader& reader, std::optional<int32_t> window,
                  const std::function<bool(int32_t layer)>& slides, ModelConfig& config) {
  const auto types = read_layer_types(reader, config.num_layers);
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    const auto i = static_cast<size_t>(layer);
    if (types ? (*types)[i] : slides(layer)) config.layer_window[i] = window.value_or(0);
  }
}

std::function<bool(int32_t)> all_but_last_of(int64_t period) {
  return [period](int32_t layer) { return (layer + 1) % period != 0; };
}

Activation read_activation(ConfigReader& reader, const char* key, const char* fallback) {
  constexpr std::pair<std::string_view, Activation> kActivations[] = {
      {"silu", Activation::kSilu},
      {"swish", Activation::kSilu},
      {"gelu", Activation::kGeluErf},
      {"gelu_pytorch_tanh", Activation::kGeluTanh}};
  const std::string name = reader.text(key, fallback);
  for (const auto& [known, activation] : kActivations) {
    if (name == known) return activation;
  }
  reader.fail_unsupported(key, "this build knows silu, swish, gelu and gelu_pytorch_tanh");
}

void read_attention_bias(ConfigReader& reader, ModelConfig& config) {
  config.qkv_bias = config.o_bias = reader.flag("attention_bias", false);
}

float read_cap(ConfigReader& reader, const char* key, double fallback) {
  constexpr double kLeast = 1e-3, kMost = 1e6;
  if (!reader.has_key(key)) return static_cast<float>(fallback);
  return static_cast<float>(reader.optional_number(key, kLeast, kMost).value_or(0.0));
}

void read_granite_factors(ConfigReader& reader, ModelConfig& config) {
  const auto factor = [&reader](const char* key) {
    constexpr double kLeast = 1e-9, kMost = 1e9;
    return static_cast<float>(reader.number(key, 1.0, kLeast, kMost));
  };
  config.embedding_scale = factor("embedding_multiplier");
  config.residual_scale = factor("residual_multiplier");
  config.attention_scale = factor("attention_multiplier");
  config.logit_scale = 1.0f / factor("logits_scaling");
}

void turn_sliding_layers_only(ModelConfig& config) {
  for (size_t i = 0; i < config.layer_rope.size(); ++i) {
    config.layer_rope[i] = config.layer_window[i] > 0 ? 0 : kNoRope;
  }
}

}  // namespace headrace
