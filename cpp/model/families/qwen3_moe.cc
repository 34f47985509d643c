#include "model/families/family.h"
#include "model/families/keys/expert_keys.h"
#include "model/families/moe_layer.h"

namespace headrace {

namespace {

/// Unlike the dense model's: all layers slide, whatever max_window_layers says.
void read_windows(ConfigReader& reader, ModelConfig& config) {
  const bool in_use = reader.flag("use_sliding_window", false);
  if (in_use) {
    const auto window = reader.has_key("sliding_window")
                            ? reader.optional_integer("sliding_window", 1, kMaxWindow)
                            : std::optional<int64_t>(4096);
    config.layer_window.assign(config.layer_window.size(),
                               static_cast<int32_t>(window.value_or(0)));
  }
  require_agreeing_layer_types(reader, config);
}

void read_qwen3_moe(ConfigReader& reader, ModelConfig& config) {
  config.qk_norm = true;
  reader.require("use_qk_norm", true);
  config.qkv_bias = config.o_bias = reader.flag("attention_bias", false);
  read_windows(reader, config);
  MoeConfig& moe = config.moe;
  read_expert_counts(reader, {{"num_experts", "num_local_experts"}, 128},
                     {{"num_experts_per_tok"}, 8}, config);
  read_qwen_sparse_layers(reader, config);
  moe.expert_width = read_width(reader, "moe_intermediate_size", 768);
  moe.router.normalize = reader.flag("norm_topk_prob", false);
}

LayerSources list_qwen3_moe_layer(const ModelConfig& config, const LayerNaming& naming) {
  return list_moe_layer(config, naming, {});
}

}  // namespace

const Family& qwen3_moe_family() {
  static const Family kFamily{
      .model_type = "qwen3_moe",
      .architectures = {"Qwen3MoeForCausalLM"},
      .defaults = {.vocab_size = 151936,
                   .hidden_size = 2048,
                   .intermediate_size = 6144,
                   .num_layers = 24,
                   .num_heads = 32,
                   .num_kv_heads = 4},
      .read = read_qwen3_moe,
      .list_layer = list_qwen3_moe_layer,
      .harmless_keys = with_router_training_keys({"sliding_window", "max_window_layers"}),
  };
  return kFamily;
}

}  // namespace headrace
