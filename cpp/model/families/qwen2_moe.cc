#include "model/families/family.h"
#include "model/families/keys/expert_keys.h"
#include "model/families/moe_layer.h"

namespace headrace {

namespace {

void read_qwen2_moe(ConfigReader& reader, ModelConfig& config) {
  config.qkv_bias = reader.flag("qkv_bias", true);
  // transformers would let every second layer slide, which no published model was trained with.
  reader.require("use_sliding_window", false);
  require_agreeing_layer_types(reader, config);
  MoeConfig& moe = config.moe;
  read_expert_counts(reader, {{"num_experts"}, 60}, {{"num_experts_per_tok"}, 4}, config);
  read_qwen_sparse_layers(reader, config);
  moe.expert_width = read_width(reader, "moe_intermediate_size", 1408);
  moe.router.normalize = reader.flag("norm_topk_prob", false);
  moe.shared_width = read_width(reader, "shared_expert_intermediate_size", 5632);
  moe.shared_gate = true;
}

LayerSources list_qwen2_moe_layer(const ModelConfig& config, const LayerNaming& naming) {
  return list_moe_layer(config, naming, {});
}

}  // namespace

const Family& qwen2_moe_family() {
  static const Family kFamily{
      .model_type = "qwen2_moe",
      .architectures = {"Qwen2MoeForCausalLM"},
      .defaults = {.vocab_size = 151936,
                   .hidden_size = 2048,
                   .intermediate_size = 5632,
                   .num_layers = 24,
                   .num_heads = 16,
                   .num_kv_heads = 16},
      .read = read_qwen2_moe,
      .list_layer = list_qwen2_moe_layer,
      .harmless_keys = with_router_training_keys({"sliding_window", "max_window_layers"}),
  };
  return kFamily;
}

}  // namespace headrace
