#include "model/load/load_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "backend/contract/cache_layout.h"
#include "base/check.h"
#include "base/mapped_file.h"
#include "model/config/config_reader.h"
#include "model/config/config_text.h"
#include "model/config/dense_modules.h"
#include "model/config/rope_keys.h"
#include "model/families/family.h"
#include "model/families/keys/layer_keys.h"
#include "model/families/wrapper.h"
#include "model/json/json.h"

namespace headrace {

namespace {

// Bounds that every product of two sizes survives in 64 bits, far above any real model.
constexpr int64_t kMaxVocab = 1 << 24;
constexpr int64_t kMaxHidden = 1 << 20;
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxPositions = 1 << 30;
constexpr int64_t kMaxToken = (int64_t{1} << 31) - 1;

/// Keys of configs of all families that don't change what is computed.
constexpr std::string_view kHarmlessKeys[] = {
    // who wrote the file
    "_*",
    "transformers_version",
    "transformers.js_config",
    "name_or_path",
    "auto_map",
    "unsloth_*",
    "tokenizer_class",
    "license",
    // training and execution
    "use_cache",
    "initializer_range",
    "attention_dropout",
    "hidden_dropout",
    "embd_pdrop",
    "resid_pdrop",
    "attn_pdrop",
    "attention_probs_dropout_prob",
    "hidden_dropout_prob",
    "classifier_dropout",
    "attn_implementation",
    "use_flash_attn",
    "use_flash_attention",
    "gradient_checkpointing",
    "torchscript",
    "use_bfloat16",
    "return_dict",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "output_past",
    "chunk_size_feed_forward",
    "is_decoder",
    "tf_legacy_loss",
    // tokens and tasks
    "bos_token_id",
    "pad_token_id",
    "unk_token_id",
    "sep_token_id",
    "cls_token_id",
    "mask_token_id",
    "decoder_start_token_id",
    "task_specific_params",
    "prefix",
    "id2label",
    "label2id",
    "num_labels",
    "problem_type",
    "finetuning_task",
    "model_max_length",
    "sentence_transformers",
    "sbert_ce_default_activation_function",
    // generation defaults of old files; sampling reads generation_config.json
    "return_dict_in_generate",
    "max_length",
    "min_length",
    "max_new_tokens",
    "do_sample",
    "early_stopping",
    "num_beams",
    "num_beam_groups",
    "num_return_sequences",
    "diversity_penalty",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    "repetition_penalty",
    "length_penalty",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "bad_words_ids",
    "exponential_decay_length_penalty",
    "suppress_tokens",
    "begin_suppress_tokens",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "remove_invalid_values",
};

/// Where both have a key that matters, text_config and the object around it must agree.
bool may_differ(const std::string& key) {
  return std::ranges::any_of(kHarmlessKeys, [&key](std::string_view pattern) {
    return pattern == key ||
           (pattern.ends_with('*') && key.starts_with(pattern.substr(0, pattern.size() - 1)));
  });
}

/// The keys of a decoder with a tower in one object: those of text_config, if there is one, and
/// those around it.
JsonValue flat_keys(const JsonValue& json, const VisionFamily& vision) {
  JsonValue flat = json;
  JsonValue::Object& out = flat.object();
  out.erase("vision_config");
  const JsonValue* text = json.find("text_config");
  if (text == nullptr || text->is_null()) return flat;
  ConfigReader outer(json, "config.json");
  if (!text->is_object()) outer.fail_value("text_config", "must be an object");
  out.erase("text_config");
  ConfigReader inner(*text, "config.json: text_config");
  const std::string type = inner.text("model_type", std::string(vision.text_types.front()));
  if (std::ranges::find(vision.text_types, type) == vision.text_types.end()) {
    inner.fail_unsupported("model_type",
                           str_cat("of this family the build runs ", vision.text_types.front()));
  }
  for (const auto& [key, value] : text->object()) {
    if (key == "model_type" || key == "architectures") continue;
    if (key == "tie_word_embeddings") {
      if (vision.nested_tie && inner.flag(key, false)) out[key] = true;
      continue;
    }
    const auto around = out.find(key);
    if (around != out.end() && around->second != value && !may_differ(key) && key != "dtype" &&
        key != "torch_dtype" && key != "eos_token_id") {
      inner.fail_value(key, str_cat("must agree with the same key outside of text_config (",
                                    shown(around->second), ")"));
    }
    out[key] = value;
  }
  return flat;
}

void read_vision(ConfigReader& reader, const JsonValue& json, const VisionFamily& vision,
                 ModelConfig& config) {
  const JsonValue* tower = json.find("vision_config");
  if (tower == nullptr || !tower->is_object()) {
    ConfigReader(json, "config.json").fail_value("vision_config", "must be an object");
  }
  ConfigReader own(*tower, "config.json: vision_config");
  config.vision = vision.read(own, reader, config);
}

const Family& read_family(ConfigReader& reader) {
  const std::string model_type = reader.text("model_type", "");
  if (model_type.empty()) reader.fail_value("model_type", "must name the model's family");
  const Family* family = find_family(model_type);
  if (family != nullptr) return *family;
  std::string known;
  for (const std::string& name : supported_model_types()) known += " " + name;
  reader.fail_unsupported("model_type", "this build runs" + known);
}

/// As AutoModel saves the body of a model: "Qwen3Model" of "Qwen3ForCausalLM".
bool names_body(std::string_view name, std::string_view architecture) {
  constexpr std::string_view kBody = "Model", kWhole = "ForCausalLM";
  return name.ends_with(kBody) && architecture.ends_with(kWhole) &&
         name.substr(0, name.size() - kBody.size()) ==
             architecture.substr(0, architecture.size() - kWhole.size());
}

std::string read_architecture(ConfigReader& reader,
                              const std::vector<std::string_view>& architectures) {
  const JsonValue* list = reader.find("architectures");
  if (list == nullptr || (list->is_array() && list->empty())) {
    return std::string(architectures.front());
  }
  if (!list->is_array()) reader.fail_value("architectures", "must be a list of names");
  for (const JsonValue& name : list->array()) {
    if (!name.is_string()) reader.fail_value("architectures", "must be a list of names");
    for (const std::string_view known : architectures) {
      const auto& own = name.text();
      if (own == known || names_body(own, known)) return std::string(known);
    }
  }
  reader.fail_unsupported("architectures",
                          str_cat("of this family the build runs ", architectures.front()));
}

/// The keys of a text model that a model with pictures wraps: those of text_config, and of those
/// around it the ones that may stand there.
JsonValue text_keys(ConfigReader& outer, const Wrapper& wrapper) {
  std::vector<std::string_view> harmless = wrapper.harmless_keys;
  harmless.insert(harmless.end(), std::begin(kHarmlessKeys), std::end(kHarmlessKeys));
  const JsonValue* text = outer.find("text_config");
  if (text == nullptr || !text->is_object()) outer.fail_value("text_config", "must be an object");
  JsonValue out = *text;
  JsonValue::Object& keys = out.object();
  if (!out.contains("model_type")) keys["model_type"] = std::string(wrapper.text_types.front());
  ConfigReader inner(out, "config.json: text_config");
  const std::string type = inner.text("model_type", "");
  if (std::ranges::find(wrapper.text_types, type) == wrapper.text_types.end()) {
    inner.fail_unsupported("model_type",
                           str_cat("of this family the build runs ", wrapper.text_types.front()));
  }
  read_architecture(outer, wrapper.architectures);
  keys.erase("architectures");
  for (const char* key : {"dtype", "torch_dtype", "eos_token_id", "quantization_config",
                          "compression_config", "tie_word_embeddings"}) {
    const JsonValue* around = outer.find(key);
    if (around != nullptr && !out.contains(key)) keys[key] = *around;
  }
  outer.refuse_unknown_keys(harmless);
  return out;
}

int32_t size_of(ConfigReader& reader, const char* key, int32_t fallback, int64_t max) {
  return static_cast<int32_t>(reader.integer(key, fallback, 1, max));
}

void read_heads(ConfigReader& reader, const FamilyDefaults& defaults, ModelConfig& config) {
  config.num_heads = size_of(reader, "num_attention_heads", defaults.num_heads, kMaxHeads);
  const bool default_kv = !reader.has_key("num_key_value_heads") && defaults.num_kv_heads > 0;
  const auto kv_heads = reader.optional_integer("num_key_value_heads", 1, kMaxHeads);
  config.num_kv_heads = static_cast<int32_t>(
      kv_heads.value_or(default_kv ? defaults.num_kv_heads : config.num_heads));
  if (config.num_heads % config.num_kv_heads != 0) {
    reader.fail_value("num_attention_heads", str_cat("must be a multiple of num_key_value_heads (",
                                                     config.num_kv_heads, ")"));
  }

  if (defaults.latent) {
    if (config.num_kv_heads != config.num_heads) {
      reader.fail_unsupported("num_key_value_heads", "all heads share latent rows");
    }
    return;
  }
  const bool default_dim = !reader.has_key("head_dim") && defaults.head_dim > 0;
  const auto head_dim = reader.optional_integer("head_dim", 1, kMaxHidden);
  if (!head_dim && !default_dim && config.hidden_size % config.num_heads != 0) {
    reader.fail_value("hidden_size", str_cat("must be a multiple of num_attention_heads (",
                                             config.num_heads, ") where head_dim is not given"));
  }
  config.head_dim = static_cast<int32_t>(
      head_dim.value_or(default_dim ? defaults.head_dim : config.hidden_size / config.num_heads));
  check_head_dim(reader, "head_dim", config.head_dim);
}

void read_shape(ConfigReader& reader, const FamilyDefaults& defaults, ModelConfig& config) {
  config.vocab_size = size_of(reader, "vocab_size", defaults.vocab_size, kMaxVocab);
  config.hidden_size = size_of(reader, "hidden_size", defaults.hidden_size, kMaxHidden);
  config.intermediate_size =
      size_of(reader, "intermediate_size", defaults.intermediate_size, kMaxIntermediate);
  config.num_layers = size_of(reader, "num_hidden_layers", defaults.num_layers, kMaxLayers);
  config.max_position_embeddings =
      size_of(reader, "max_position_embeddings", defaults.max_position_embeddings, kMaxPositions);
  config.norm.eps =
      static_cast<float>(reader.number(defaults.norm_eps_key, defaults.norm_eps, 1e-12, 1.0));
  config.tie_word_embeddings = reader.flag("tie_word_embeddings", defaults.tie_word_embeddings);
  config.layer_window.assign(static_cast<size_t>(config.num_layers), 0);
  config.layer_rope.assign(static_cast<size_t>(config.num_layers), 0);
  read_heads(reader, defaults, config);
}

DType read_dtype(ConfigReader& reader) {
  const std::string old_style = reader.text("torch_dtype", "float32");
  std::string name = reader.text("dtype", old_style);
  for (const std::string_view package : {"torch.", "paddle."}) {
    if (name.starts_with(package)) name = name.substr(package.size());
  }
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    if (name == dtype_name(dtype)) return dtype;
  }
  reader.fail_unsupported(reader.has_key("dtype") ? "dtype" : "torch_dtype",
                          "this build knows float32, bfloat16, float16 and float64");
}

/// Paddle writes `dtype` and no version, PyTorch exporters write `torch_dtype` or their version.
CheckpointLayout likely_layout(const ConfigReader& reader, const Family& family) {
  const bool paddle = family.has_paddle_layout && reader.has_key("dtype") &&
                      !reader.has_key("torch_dtype") && !reader.has_key("transformers_version");
  return paddle ? CheckpointLayout::kPaddle : CheckpointLayout::kTorch;
}

StoredQuantization read_quantization(ConfigReader& reader) {
  // Old files of compressed-tensors have the second name.
  for (const char* key : {"quantization_config", "compression_config"}) {
    const JsonValue* value = reader.find(key);
    if (value == nullptr || value->empty()) continue;
    if (!value->is_object()) reader.fail_value(key, "must be an object");
    return read_stored_quantization(*value);
  }
  const JsonValue* other = reader.find("quantization");
  if (other != nullptr && !other->empty()) {
    reader.fail_unsupported("quantization", "quantized checkpoints say so in quantization_config");
  }
  return {};
}

/// is_causal. Alibaba's gte-Qwen2 models bring code of their own whose attention is bidirectional
/// where the key does not say otherwise.
bool read_causal(ConfigReader& reader, const ModelConfig& config) {
  bool usual = config.causal;
  if (const JsonValue* code = reader.find("auto_map"); code != nullptr && code->is_object()) {
    const JsonValue* found = code->find("AutoModel");
    const bool is_gte = config.model_type == "qwen2" && found != nullptr && found->is_string() &&
                        found->text().ends_with("modeling_qwen.Qwen2Model");
    usual = usual && !is_gte;
  }
  const bool causal = reader.find("is_causal") == nullptr ? usual : reader.flag("is_causal", usual);
  if (causal && !config.causal) {
    reader.fail_unsupported("is_causal", "this family's attention is bidirectional");
  }
  const bool has_window = std::ranges::any_of(config.layer_window, [](int32_t w) { return w > 0; });
  if (!causal && config.causal && has_window) {
    reader.fail_unsupported("is_causal",
                            "bidirectional attention with a sliding window doesn't run");
  }
  return causal;
}

/// Heads of layers without a window, which have one size.
int32_t head_dim_of_full(const ModelConfig& config) {
  const auto full = std::ranges::find(config.layer_window, 0);
  if (full == config.layer_window.end()) return config.head_dim;
  return config.heads_of(static_cast<int32_t>(full - config.layer_window.begin())).head_dim;
}

/// After the windows are known.
void read_ropes(ConfigReader& reader, const Family& family, ModelConfig& config) {
  const RopeDefaults defaults{
      .theta = family.defaults.rope_theta,
      .max_position_embeddings = config.max_position_embeddings,
      .mrope = family.vision == nullptr ? MropeDefaults{} : family.vision->mrope,
      .head_dim = head_dim_of_full(config),
      .sliding_head_dim = config.head_dim,
      .rules = family.rope};
  if (!family.sliding_rope) {
    const RopeScaling scaling = read_rope_scaling(reader, defaults);
    config.ropes = {make_rope(scaling, family.rope_style)};
    if (config.latent.rank > 0) {
      const double d = config.latent.nope_dim + config.latent.rope_dim;
      const double factor = family.rope.scales_attention ? scaling.score_factor() : 1.0;
      config.attention_scale = static_cast<float>(factor / std::sqrt(d));
    }
    config.q_factor = {static_cast<float>(scaling.query_beta),
                       static_cast<int32_t>(scaling.original_length)};
    return;
  }
  const RopesByType scalings = read_ropes_by_type(reader, defaults, *family.sliding_rope);
  config.ropes = {make_rope(scalings.full, family.rope_style),
                  make_rope(scalings.sliding, family.rope_style)};
  for (size_t i = 0; i < config.layer_rope.size(); ++i) {
    config.layer_rope[i] = config.layer_window[i] > 0 ? 1 : 0;
  }
}

/// Adds eos_token_id, a number or a list, to `ids`.
void read_eos(ConfigReader& reader, int32_t vocab_size, std::vector<int32_t>& ids) {
  const JsonValue* value = reader.find("eos_token_id");
  if (value == nullptr) return;
  const JsonValue::Array list = value->is_array() ? value->array() : JsonValue::Array{*value};
  std::set<int32_t> known(ids.begin(), ids.end());
  for (const JsonValue& entry : list) {
    if (!entry.is_unsigned() || entry.unsigned_integer() > uint64_t{kMaxToken}) {
      reader.fail_value("eos_token_id", "must be a token id or a list of them");
    }
    const auto id = entry.integer();
    // An id behind the vocabulary can never be generated.
    if (id >= vocab_size) continue;
    if (known.insert(static_cast<int32_t>(id)).second) ids.push_back(static_cast<int32_t>(id));
  }
}

}  // namespace

ModelConfig parse_model_config(const std::string& config_json,
                               const std::string& generation_config_json) {
  const JsonValue json = parse_json_object(config_json, "config.json", kConfigLimits);
  ConfigReader outer(json, "config.json");
  const Wrapper* wrapper = find_wrapper(outer.text("model_type", ""));
  const JsonValue own = wrapper == nullptr ? json : text_keys(outer, *wrapper);
  ConfigReader whole(own, "config.json");
  const Family& family = read_family(whole);
  const JsonValue keys = family.vision == nullptr ? own : flat_keys(own, *family.vision);
  ConfigReader reader(keys, "config.json");
  reader.find("model_type");

  ModelConfig config;
  config.model_type = family.model_type;
  if (wrapper != nullptr) config.wrapper = wrapper->model_type;
  config.architecture = read_architecture(reader, family.architectures);
  config.layout = likely_layout(reader, family);
  read_shape(reader, family.defaults, config);
  config.checkpoint_dtype = read_dtype(reader);
  config.stored_quantization = read_quantization(reader);
  family.read(reader, config);
  config.causal = read_causal(reader, config);
  if (family.is_encoder()) {
    config.has_head = false;
    config.tie_word_embeddings = true;
  }
  if (family.vision != nullptr) read_vision(reader, json, *family.vision, config);
  read_ropes(reader, family, config);
  if (std::ranges::count(config.layer_rope, kNoRope) == config.num_layers) config.ropes.clear();
  config.gate.activation =
      read_activation(reader, family.defaults.activation_key, family.defaults.activation);
  read_eos(reader, config.vocab_size, config.eos_token_ids);
  std::vector<std::string_view> harmless = family.harmless_keys;
  harmless.insert(harmless.end(), std::begin(kHarmlessKeys), std::end(kHarmlessKeys));
  reader.refuse_unknown_keys(harmless);

  if (!generation_config_json.empty()) {
    const JsonValue generation =
        parse_json_object(generation_config_json, "generation_config.json", kConfigLimits);
    ConfigReader generation_reader(generation, "generation_config.json");
    read_eos(generation_reader, config.vocab_size, config.eos_token_ids);
  }
  return config;
}

ModelConfig load_model_config(const std::filesystem::path& folder) {
  const std::string text = read_config_text(folder);
  const auto generation = folder / "generation_config.json";
  std::error_code ignored;
  const bool has_generation = std::filesystem::exists(generation, ignored);
  ModelConfig out = parse_model_config(
      text, has_generation ? read_small_file(generation, kConfigLimits.max_bytes) : std::string());
  if (out.pool_head.layers.empty()) out.pool_head.layers = read_dense_modules(folder);
  return out;
}

bool has_mtp(const ModelConfig& config) {
  const Family* family = find_family(config.model_type);
  return family != nullptr && family->list_mtp != nullptr;
}

MtpTensors mtp_tensors(const ModelConfig& config) {
  const Family* family = find_family(config.model_type);
  const bool is_layer = family != nullptr && family->mtp_is_layer;
  return {is_layer ? config.num_layers : MtpTensors::kNowhere};
}

std::vector<std::string> supported_model_types() {
  std::vector<std::string> names;
  for (const Family* family : all_families()) names.emplace_back(family->model_type);
  for (const Wrapper& wrapper : all_wrappers()) names.emplace_back(wrapper.model_type);
  return names;
}

}  // namespace headrace
