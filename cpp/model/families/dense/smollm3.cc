#include "model/families/family.h"
#include "model/families/keys/layer_keys.h"

namespace headrace {

namespace {

/// no_rope_layers: in spite of its name a 1 for each layer that turns, and a 0 for the others.
void read_turning_layers(ConfigReader& reader, ModelConfig& config) {
  const int64_t period = reader.integer("no_rope_layer_interval", 4, 1, kMaxWindow);
  const JsonValue* list = reader.find("no_rope_layers");
  if (list != nullptr && (!list->is_array() || list->size() < config.layer_rope.size())) {
    reader.fail_value("no_rope_layers", "must have a 0 or 1 for each hidden layer");
  }
  for (size_t i = 0; i < config.layer_rope.size(); ++i) {
    bool turns = (static_cast<int64_t>(i) + 1) % period != 0;
    if (list != nullptr) {
      const JsonValue& entry = list->array()[i];
      turns = entry == JsonValue(int64_t{1}) || entry == JsonValue(true);
      if (!turns && entry != JsonValue(int64_t{0}) && entry != JsonValue(false)) {
        reader.fail_value("no_rope_layers", "must have a 0 or 1 for each hidden layer");
      }
    }
    if (!turns) config.layer_rope[i] = kNoRope;
  }
}

void read_smollm3(ConfigReader& reader, ModelConfig& config) {
  read_attention_bias(reader, config);
  config.mlp_bias = reader.flag("mlp_bias", false);
  read_turning_layers(reader, config);
  const bool in_use = reader.flag("use_sliding_window", false);
  const auto window = read_window(reader, {});
  if (!in_use) return require_agreeing_layer_types(reader, config);
  read_windows(
      reader, window,
      [&](int32_t layer) { return config.layer_rope[static_cast<size_t>(layer)] == kNoRope; },
      config);
}

}  // namespace

const Family& smollm3_family() {
  static const Family kFamily{
      .model_type = "smollm3",
      .architectures = {"SmolLM3ForCausalLM"},
      .defaults = {.vocab_size = 128256,
                   .hidden_size = 2048,
                   .num_layers = 36,
                   .num_heads = 16,
                   .num_kv_heads = 4,
                   .rope_theta = 2e6,
                   .tie_word_embeddings = true},
      .read = read_smollm3,
      .harmless_keys = {"max_window_layers", "pretraining_tp"},
  };
  return kFamily;
}

}  // namespace headrace
