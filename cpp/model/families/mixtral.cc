#include "model/families/family.h"
#include "model/families/keys/expert_keys.h"
#include "model/families/moe_layer.h"

namespace headrace {

namespace {

void read_mixtral(ConfigReader& reader, ModelConfig& config) {
  const int64_t window = reader.optional_integer("sliding_window", 1, kMaxWindow).value_or(0);
  config.layer_window.assign(config.layer_window.size(), static_cast<int32_t>(window));
  require_agreeing_layer_types(reader, config);
  read_expert_counts(reader, {{"num_local_experts", "num_experts"}, 8},
                     {{"num_experts_per_tok"}, 2}, config);
  config.moe.expert_width = config.intermediate_size;
}

LayerSources list_mixtral_layer(const ModelConfig& config, const LayerNaming& naming) {
  return list_moe_layer(config, naming,
                        {.gate = "block_sparse_moe.gate",
                         .experts = "block_sparse_moe.experts.",
                         .gate_proj = "w1",
                         .up_proj = "w3",
                         .down_proj = "w2"});
}

}  // namespace

const Family& mixtral_family() {
  static const Family kFamily{
      .model_type = "mixtral",
      .architectures = {"MixtralForCausalLM"},
      .defaults = {.intermediate_size = 14336,
                   .num_kv_heads = 8,
                   .max_position_embeddings = 131072,
                   .norm_eps = 1e-5,
                   .rope_theta = 1e6},
      .read = read_mixtral,
      .list_layer = list_mixtral_layer,
      .harmless_keys = with_router_training_keys({}),
  };
  return kFamily;
}

}  // namespace headrace
