#include "model/lora/lora_config.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "model/config/config_reader.h"
#include "model/json/json.h"

namespace headrace {

namespace {

constexpr const char* kOrigin = "adapter_config.json";
constexpr int64_t kMaxLayer = 1 << 20;
constexpr double kMaxAlpha = 1e9;
// Each module of an adapter is held against all of them.
constexpr size_t kMaxNames = 1 << 14;

/// Keys that say who made the adapter and how, not what it computes. Which modules it has, the
/// tensors tell: keys that chose them are here too.
constexpr std::string_view kHarmlessKeys[] = {
    "auto_mapping",      "base_model_name_or_path", "corda_config",   "ensure_weight_tying",
    "eva_config",        "exclude_modules",         "inference_mode", "layers_pattern",
    "lora_dropout",      "lora_ga_config",          "loftq_config",   "megatron_core",
    "peft_version",      "qalora_group_size",       "revision",       "runtime_config",
    "task_type",         "velora_config",
    "fan_in_fan_out",  // how the trained framework kept W; A and B are the same either way
    "monteclora_config",
};

bool matches(std::string_view name, bool whole, std::string_view module) {
  if (module == name) return true;
  return !whole && module.ends_with(name) && module[module.size() - name.size() - 1] == '.';
}

/// PEFT takes keys of patterns as regular expressions. Those that only name a module are honoured.
LoraConfig::Pattern read_pattern(const ConfigReader& reader, const char* key,
                                 const std::string& text) {
  LoraConfig::Pattern out;
  std::string_view rest = text;
  out.whole = rest.starts_with('^');
  if (out.whole) rest.remove_prefix(1);
  if (rest.ends_with('$')) rest.remove_suffix(1);
  for (size_t i = 0; i < rest.size(); ++i) {
    const bool escaped_dot = rest[i] == '\\' && i + 1 < rest.size() && rest[i + 1] == '.';
    if (escaped_dot) ++i;
    const auto c = static_cast<unsigned char>(rest[i]);
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '_' || c == '-' || c == '.';
    if (!plain) {
      reader.fail_unsupported(key, str_cat("of its patterns only names of modules are supported, "
                                           "not ",
                                           in_quotes(text)));
    }
    out.name += static_cast<char>(c);
  }
  if (out.name.empty()) reader.fail_value(key, "must not have an empty pattern");
  return out;
}

std::vector<LoraConfig::Pattern> read_patterns(ConfigReader& reader, const char* key, double min,
                                               double max) {
  std::vector<LoraConfig::Pattern> out;
  const JsonValue* object = reader.find(key);
  if (object == nullptr) return out;
  if (!object->is_object() || object->size() > kMaxNames) {
    reader.fail_value(key, str_cat("must be an object of at most ", kMaxNames, " patterns"));
  }
  for (const auto& [text, value] : object->object()) {
    LoraConfig::Pattern pattern = read_pattern(reader, key, text);
    pattern.value = value.is_number() ? value.number() : std::nan("");
    if (!(pattern.value >= min && pattern.value <= max)) {
      reader.fail_value(key, str_cat("must have numbers from ", min, " to ", max));
    }
    out.push_back(std::move(pattern));
  }
  return out;
}

std::vector<std::string> read_targets(ConfigReader& reader) {
  const JsonValue* value = reader.find("target_modules");
  // A string is a regular expression or "all-linear".
  if (value == nullptr || value->is_string()) return {};
  const bool names =
      value->is_array() && value->size() <= kMaxNames &&
      std::ranges::all_of(value->array(), [](const JsonValue& x) { return x.is_string(); });
  if (!names) {
    reader.fail_value("target_modules",
                      str_cat("must be a string or a list of at most ", kMaxNames, " strings"));
  }
  std::vector<std::string> out;
  for (const JsonValue& name : value->array()) out.push_back(name.text());
  return out;
}

std::vector<int32_t> read_layers(ConfigReader& reader) {
  std::vector<int32_t> out;
  const JsonValue* value = reader.find("layers_to_transform");
  if (value == nullptr) return out;
  const auto add = [&](const JsonValue& number) {
    const double layer = number.is_whole() ? number.number() : -1.0;
    if (!(layer >= 0.0 && layer < static_cast<double>(kMaxLayer))) {
      reader.fail_value("layers_to_transform", "must be a layer's number or a list of them");
    }
    out.push_back(static_cast<int32_t>(layer));
  };
  if (!value->is_array()) {
    add(*value);
  } else {
    for (const JsonValue& number : value->array()) add(number);
  }
  return out;
}

// Some ways to start training take a part of the base weights away and put it into A and B.
void check_start(ConfigReader& reader) {
  const JsonValue* value = reader.find("init_lora_weights");
  if (value == nullptr || value->is_boolean()) return;
  for (const char* harmless : {"gaussian", "eva", "orthogonal"}) {
    if (*value == harmless) return;
  }
  reader.fail_unsupported("init_lora_weights",
                          "it changes the base model's weights too. Convert the adapter to a plain "
                          "LoRA first (save_pretrained with path_initial_model_for_weight_"
                          "conversion)");
}

double value_of(const std::vector<LoraConfig::Pattern>& patterns, double otherwise,
                std::string_view module) {
  const LoraConfig::Pattern* first = nullptr;
  for (const LoraConfig::Pattern& pattern : patterns) {
    if (!matches(pattern.name, pattern.whole, module)) continue;
    if (first != nullptr && first->value != pattern.value) {
      throw_error(ErrorCode::kUnsupported, kOrigin, ": the patterns ", in_quotes(first->name),
                  " and ", in_quotes(pattern.name), " both match ", in_quotes(module),
                  " but differ: name each module once.");
    }
    first = &pattern;
  }
  return first == nullptr ? otherwise : first->value;
}

}  // namespace

int32_t LoraConfig::rank_of(std::string_view module) const {
  return static_cast<int32_t>(value_of(ranks, r, module));
}

float LoraConfig::scale_of(std::string_view module) const {
  const double rank = rank_of(module);
  return static_cast<float>(value_of(alphas, alpha, module) / (rslora ? std::sqrt(rank) : rank));
}

bool LoraConfig::targets(std::string_view module, int32_t layer) const {
  const bool named =
      target_modules.empty() ||
      std::any_of(target_modules.begin(), target_modules.end(),
                  [&](const std::string& name) { return matches(name, false, module); });
  return named &&
         (layers.empty() || std::find(layers.begin(), layers.end(), layer) != layers.end());
}

LoraConfig parse_lora_config(std::string_view text) {
  const JsonValue json = parse_json_object(text, kOrigin, JsonLimits{});
  ConfigReader reader(json, kOrigin);
  if (!reader.has_key("peft_type")) reader.fail_value("peft_type", "must be \"LORA\"");
  reader.require("peft_type", "LORA");
  LoraConfig out;
  out.r = static_cast<int32_t>(reader.integer("r", out.r, 1, kMaxLoraRank));
  out.alpha = reader.number("lora_alpha", out.alpha, -kMaxAlpha, kMaxAlpha);
  out.rslora = reader.flag("use_rslora", false);
  out.ranks = read_patterns(reader, "rank_pattern", 1, kMaxLoraRank);
  for (const LoraConfig::Pattern& rank : out.ranks) {
    if (rank.value != std::floor(rank.value)) {
      reader.fail_value("rank_pattern", "must have whole numbers");
    }
  }
  out.alphas = read_patterns(reader, "alpha_pattern", -kMaxAlpha, kMaxAlpha);
  out.target_modules = read_targets(reader);
  out.layers = read_layers(reader);
  reader.require("bias", "none");
  check_start(reader);
  reader.refuse_unknown_keys(kHarmlessKeys);
  return out;
}

}  // namespace headrace
