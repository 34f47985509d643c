// EXAONE 4: norms stand behind the blocks alone. Where some layers have a window, the others don't
// turn.

#include "model/families/family.h"
#include "model/families/keys/layer_keys.h"
#include "model/families/llama_layer.h"

namespace headrace {

namespace {

/// sliding_window_pattern, of files without layer_types: a period, or a letter for each layer of
/// one ("LLLG": three local ones and a global one).
int64_t read_period(ConfigReader& reader) {
  const JsonValue* pattern = reader.find("sliding_window_pattern");
  if (pattern == nullptr || !pattern->is_string()) {
    return reader.optional_integer("sliding_window_pattern", 1, kMaxWindow).value_or(4);
  }
  const std::string& letters = pattern->text();
  if (letters.find_first_not_of('L') + 1 != letters.size() || letters.back() != 'G') {
    reader.fail_unsupported("sliding_window_pattern", "this build knows a period or \"LLLG\"");
  }
  return static_cast<int64_t>(letters.size());
}

void read_exaone4(ConfigReader& reader, ModelConfig& config) {
  config.qk_norm = true;
  const auto window = read_window(reader, 4096);
  const int64_t period = read_period(reader);
  read_windows(reader, window, all_but_last_of(period), config);
  if (window) turn_sliding_layers_only(config);
}

}  // namespace

const Family& exaone4_family() {
  static const Family kFamily{
      .model_type = "exaone4",
      .architectures = {"Exaone4ForCausalLM"},
      .defaults = {.vocab_size = 102400,
                   .intermediate_size = 16384,
                   .num_kv_heads = 32,
                   .max_position_embeddings = 2048,
                   .norm_eps = 1e-5},
      .read = read_exaone4,
      .list_layer = list_layer_with_norms_behind,
      .harmless_keys = {"cache_implementation"},
  };
  return kFamily;
}

}  // namespace headrace
