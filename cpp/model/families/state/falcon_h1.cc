// Falcon-H1: attention and Mamba-2 side by side in every layer, and factors nearly everywhere.

#include <cmath>
#include <memory>

#include "base/check.h"
#include "model/blocks/states/pair_block.h"
#include "model/families/family.h"
#include "model/families/keys/layer_keys.h"
#include "model/families/llama_layer.h"
#include "model/families/state/scan_layer.h"

namespace headrace {

namespace {

constexpr double kLeastFactor = 1e-9, kMostFactor = 1e9;

float read_factor(ConfigReader& reader, const char* key) {
  return static_cast<float>(reader.number(key, 1.0, kLeastFactor, kMostFactor));
}

/// So many factors in a list; ones where it is absent.
template <size_t kCount>
std::array<float, kCount> read_factors(ConfigReader& reader, const char* key) {
  std::array<float, kCount> out;
  out.fill(1.0f);
  const JsonValue* list = reader.find(key);
  if (list == nullptr) return out;
  const std::string expected =
      str_cat("must be ", kCount, " numbers from ", kLeastFactor, " to ", kMostFactor);
  if (!list->is_array() || list->size() != kCount) reader.fail_value(key, expected);
  for (size_t i = 0; i < kCount; ++i) {
    const JsonValue& factor = list->array()[i];
    const double value = factor.is_number() ? factor.number() : 0.0;
    if (!(value >= kLeastFactor && value <= kMostFactor)) reader.fail_value(key, expected);
    out[i] = static_cast<float>(value);
  }
  return out;
}

void read_falcon_factors(ConfigReader& reader, ModelConfig& config) {
  config.embedding_scale = read_factor(reader, "embedding_multiplier");
  config.logit_scale = read_factor(reader, "lm_head_multiplier");
  // Keys are multiplied in scores alone.
  config.attention_scale =
      read_factor(reader, "key_multiplier") / std::sqrt(static_cast<float>(config.head_dim));
  StateConfig& state = config.state;
  state.attention_branch = {read_factor(reader, "attention_in_multiplier"),
                            read_factor(reader, "attention_out_multiplier")};
  state.scan_branch = {read_factor(reader, "ssm_in_multiplier"),
                       read_factor(reader, "ssm_out_multiplier")};
  state.scan_factors = read_factors<5>(reader, "ssm_multipliers");
  const auto mlp = read_factors<2>(reader, "mlp_multipliers");
  config.gate.factor = mlp[0];
  config.feed_forward_scale = mlp[1];
}

void read_falcon_scan(ConfigReader& reader, ModelConfig& config) {
  const int64_t expand = reader.integer("mamba_expand", 2, 1, 64);
  const auto given = reader.optional_integer("mamba_d_ssm", 1, kMaxIntermediate);
  int64_t columns = expand * config.hidden_size;
  if (given || !reader.has_key("mamba_d_ssm")) columns = given.value_or(1024);
  read_mamba_heads(reader, columns, {.columns_from = "mamba_d_ssm"}, config);
  StateConfig& state = config.state;
  state.scan_in_bias = reader.flag("mamba_proj_bias", false);
  state.scan_out_bias = reader.flag("projectors_bias", false);
  state.scan_norm = reader.flag("mamba_rms_norm", false);
  state.gate_first = !reader.flag("mamba_norm_before_gate", true);
  state.layers.assign(static_cast<size_t>(config.num_layers), true);
}

void read_falcon_h1(ConfigReader& reader, ModelConfig& config) {
  read_attention_bias(reader, config);
  config.mlp_bias = reader.flag("mlp_bias", false);
  reader.require("hidden_act", "silu");
  reader.require("attn_layer_indices", JsonValue());
  reader.require("mamba_use_mlp", true);
  read_falcon_factors(reader, config);
  read_falcon_scan(reader, config);
  for (const char* key : {"layer_types", "layers_block_type"}) {
    const JsonValue* types = reader.find(key);
    const JsonValue all(JsonValue::Array(static_cast<size_t>(config.num_layers), "hybrid"));
    if (types != nullptr && *types != all) {
      reader.fail_unsupported(key, "of this family the build runs hybrid layers");
    }
  }
}

LayerSources list_falcon_layer(const ModelConfig& config, const LayerNaming& naming) {
  LayerSources out = list_norms(config, naming, {.feed_forward_norm = "pre_ff_layernorm"});
  auto mixer = std::make_unique<PairSources>();
  mixer->attention = {list_attention(config, naming), config.state.attention_branch};
  mixer->scan = {list_scan(config, naming, "mamba."), config.state.scan_branch};
  out.mixer = std::move(mixer);
  auto mlp = std::make_unique<GatedMlpSources>();
  list_gated_mlp(config, naming,
                 {.name = "",
                  .stem = "feed_forward.",
                  .width = config.intermediate_size,
                  .bias = config.mlp_bias},
                 *mlp);
  out.feed_forward = std::move(mlp);
  return out;
}

}  // namespace

const Family& falcon_h1_family() {
  static const Family kFamily{
      .model_type = "falcon_h1",
      .architectures = {"FalconH1ForCausalLM"},
      .defaults = {.vocab_size = 128000,
                   .intermediate_size = 14336,
                   .num_kv_heads = 8,
                   .max_position_embeddings = 8192,
                   .norm_eps = 1e-5},
      .read = read_falcon_h1,
      .list_layer = list_falcon_layer,
      .final_norm = "final_layernorm",
      .harmless_keys = {"mamba_chunk_size", "mlp_expansion_factor", "num_logits_to_keep",
                        "time_step_floor", "time_step_max", "time_step_min", "time_step_rank"},
  };
  return kFamily;
}

}  // namespace headrace
