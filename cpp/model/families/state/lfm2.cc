// LFM2 and LFM2.5: short gated convolutions between layers of attention.

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/checked_math.h"
#include "model/blocks/states/conv_block.h"
#include "model/families/family.h"
#include "model/families/keys/expert_keys.h"
#include "model/families/keys/state_keys.h"
#include "model/families/llama_layer.h"
#include "model/families/moe_layer.h"

namespace headrace {

namespace {

/// What both kinds have.
void read_layers(ConfigReader& reader, const std::function<bool(int32_t)>& keeps,
                 ModelConfig& config) {
  config.qk_norm = true;
  config.tie_word_embeddings = reader.flag("tie_embedding", config.tie_word_embeddings);
  reader.require("hidden_act", "silu");
  reader.require("use_pos_enc", true);
  read_state_layers(reader, {"conv"}, keeps, config);
  config.state.conv_kernel = read_conv_kernel(reader, "conv_L_cache", 3);
  config.state.conv_bias = reader.flag("conv_bias", false);
  for (const char* key : {"block_dim", "conv_dim", "conv_dim_out"}) {
    reader.require(key, config.hidden_size);
  }
}

/// full_attn_idxs; where it is absent, all layers have attention.
std::function<bool(int32_t)> read_attention_layers(ConfigReader& reader,
                                                   const ModelConfig& config) {
  const JsonValue* list = reader.find("full_attn_idxs");
  if (list == nullptr) return [](int32_t) { return false; };
  std::vector<bool> keeps(static_cast<size_t>(config.num_layers), true);
  const char* expected = "must list numbers of layers, counted from 0";
  if (!list->is_array()) reader.fail_value("full_attn_idxs", expected);
  for (const JsonValue& layer : list->array()) {
    if (!layer.is_unsigned() || layer.unsigned_integer() >= keeps.size()) {
      reader.fail_value("full_attn_idxs", expected);
    }
    keeps[layer.unsigned_integer()] = false;
  }
  return [keeps](int32_t layer) { return keeps[static_cast<size_t>(layer)]; };
}

/// The width of MLPs: as it stands, or two thirds of it, times a factor and rounded up, unless the
/// factor is null.
int32_t read_adjusted_width(ConfigReader& reader, int32_t width) {
  constexpr const char* kFactor = "block_ffn_dim_multiplier";
  int64_t out = reader.integer("block_ff_dim", width, 1, kMaxIntermediate);
  const bool adjusts = reader.flag("block_auto_adjust_ff_dim", true);
  const auto factor = reader.has_key(kFactor) ? reader.optional_number(kFactor, 1e-3, 1e3)
                                              : std::optional<double>(1.0);
  const int64_t unit = reader.integer("block_multiple_of", 256, 1, kMaxIntermediate);
  if (!adjusts) return static_cast<int32_t>(out);
  out = 2 * out / 3;
  if (factor) out = round_up(static_cast<int64_t>(*factor * static_cast<double>(out)), unit);
  if (out < 1 || out > kMaxIntermediate) {
    reader.fail_value(factor ? kFactor : "block_ff_dim",
                      str_cat("must make MLPs of 1 to ", kMaxIntermediate, " columns"));
  }
  return static_cast<int32_t>(out);
}

void read_lfm2(ConfigReader& reader, ModelConfig& config) {
  read_layers(reader, read_attention_layers(reader, config), config);
  reader.require("block_use_swiglu", true);
  config.intermediate_size = read_adjusted_width(reader, config.intermediate_size);
}

void read_lfm2_moe(ConfigReader& reader, ModelConfig& config) {
  read_layers(reader, [](int32_t) { return false; }, config);
  read_expert_counts(reader, {{"num_experts"}, 32}, {{"num_experts_per_tok"}, 4}, config);
  MoeConfig& moe = config.moe;
  moe.expert_width = read_width(reader, "moe_intermediate_size", 1792);
  const int64_t dense = reader.integer("num_dense_layers", 2, 0, config.num_layers);
  std::fill_n(moe.sparse_layers.begin(), dense, false);
  moe.has_correction = reader.flag("use_expert_bias", true);
  read_sigmoid_router(reader, moe.router);
  moe.router.norm_eps = 1e-6f;
}

std::unique_ptr<ConvSources> list_conv(const ModelConfig& config, const LayerNaming& naming) {
  const int64_t hidden = config.hidden_size;
  const bool bias = config.state.conv_bias;
  auto out = std::make_unique<ConvSources>();
  out->conv = {.channels = config.hidden_size, .kernel = config.state.conv_kernel};
  out->in = naming.linear("conv_in", {{"conv.in_proj", 3 * hidden}}, hidden, bias);
  out->weight = list_taps(naming.own("taps"), naming.stored("conv.conv.weight"), hidden,
                          config.state.conv_kernel);
  if (bias) {
    out->conv_bias = {.name = naming.own("conv_bias"),
                      .parts = {{naming.stored("conv.conv.bias"), hidden}},
                      .is_float = true};
  }
  out->out = naming.linear("conv_out", {{"conv.out_proj", hidden}}, hidden, bias);
  return out;
}

std::unique_ptr<FeedForwardSources> list_lfm2_feed_forward(const ModelConfig& config,
                                                           const LayerNaming& naming) {
  if (has_experts(config, naming.layer())) {
    return list_experts(config, naming,
                        {.gate = "feed_forward.gate",
                         .experts = "feed_forward.experts.",
                         .gate_proj = "w1",
                         .up_proj = "w3",
                         .down_proj = "w2",
                         .correction = "feed_forward.expert_bias"});
  }
  auto out = std::make_unique<GatedMlpSources>();
  list_gated_mlp(config, naming,
                 {.name = "",
                  .stem = "feed_forward.",
                  .width = config.intermediate_size,
                  .gate_proj = "w1",
                  .up_proj = "w3",
                  .down_proj = "w2"},
                 *out);
  return out;
}

LayerSources list_lfm2_layer(const ModelConfig& config, const LayerNaming& naming) {
  const LayerNames names{.mixer_norm = "operator_norm",
                         .feed_forward_norm = "ffn_norm",
                         .q_norm = "self_attn.q_layernorm",
                         .k_norm = "self_attn.k_layernorm",
                         .o = "self_attn.out_proj"};
  LayerSources out = list_norms(config, naming, names);
  if (config.state.has(naming.layer())) {
    out.mixer = list_conv(config, naming);
  } else {
    out.mixer = list_attention(config, naming, names);
  }
  out.feed_forward = list_lfm2_feed_forward(config, naming);
  return out;
}

constexpr FamilyDefaults kDefaults{.vocab_size = 65536,
                                   .hidden_size = 2560,
                                   .intermediate_size = 12288,
                                   .num_kv_heads = 8,
                                   .max_position_embeddings = 128000,
                                   .norm_eps_key = "norm_eps",
                                   .norm_eps = 1e-5,
                                   .rope_theta = 1e6,
                                   .tie_word_embeddings = true};

}  // namespace

const Family& lfm2_family() {
  static const Family kFamily{
      .model_type = "lfm2",
      .architectures = {"Lfm2ForCausalLM"},
      .defaults = kDefaults,
      .read = read_lfm2,
      .list_layer = list_lfm2_layer,
      .final_norm = "embedding_norm",
      .harmless_keys = {"block_mlp_init_scale", "block_out_init_scale", "block_norm_eps",
                        "block_use_xavier_init", "conv_use_xavier_init", "num_heads"},
  };
  return kFamily;
}

const Family& lfm2_moe_family() {
  static const Family kFamily{
      .model_type = "lfm2_moe",
      .architectures = {"Lfm2MoeForCausalLM"},
      .defaults =
          [] {
            FamilyDefaults out = kDefaults;
            out.hidden_size = 2048;
            out.intermediate_size = 7168;
            return out;
          }(),
      .read = read_lfm2_moe,
      .list_layer = list_lfm2_layer,
      .final_norm = "embedding_norm",
      .harmless_keys = with_router_training_keys({}),
  };
  return kFamily;
}

}  // namespace headrace
