// DeepSeek-V2, V2-Lite and their Coder: latent attention, experts chosen by a softmax.

#include <string>

#include "model/families/keys/expert_keys.h"
#include "model/families/latent/latent_layer.h"

namespace headrace {

namespace {

constexpr ExpertNames kDeepseekNames{.shared = "mlp.shared_experts."};

/// Of V2, whose topk_method is group_limited_greedy.
void read_groups(ConfigReader& reader, RouterSpec& router) {
  const std::string method = reader.text("topk_method", "greedy");
  if (method == "group_limited_greedy") {
    router.by_best = true;
    read_expert_groups(reader, router);
    return;
  }
  reader.require("topk_method", "greedy");
  reader.find("n_group");
  reader.find("topk_group");
}

void read_deepseek_v2(ConfigReader& reader, ModelConfig& config) {
  read_latent(reader, {1536, 512, 128, 64, 128}, config);
  config.mlp_bias = reader.flag("mlp_bias", false);
  MoeConfig& moe = config.moe;
  read_expert_counts(reader, {{"n_routed_experts", "num_local_experts"}, 64},
                     {{"num_experts_per_tok"}, 0}, config);
  if (moe.router.top_k == 0) reader.fail_value("num_experts_per_tok", "must be a number");
  read_dense_layers(reader, 0, config);
  reader.require("moe_layer_freq", 1);
  moe.expert_width = read_width(reader, "moe_intermediate_size", 1407);
  read_shared_experts(reader, "n_shared_experts", 2, moe);
  reader.require("scoring_func", "softmax");
  read_groups(reader, moe.router);
  moe.router.normalize = false;
  // The makers' code normalizes, transformers never does.
  reader.require("norm_topk_prob", false);
  moe.router.scale = static_cast<float>(reader.number("routed_scaling_factor", 1.0, 1e-6, 1e6));
}

LayerSources list_deepseek_layer(const ModelConfig& config, const LayerNaming& naming) {
  return list_latent_layer(config, naming, kDeepseekNames);
}

}  // namespace

const Family& deepseek_v2_family() {
  static const Family kFamily{
      .model_type = "deepseek_v2",
      .architectures = {"DeepseekV2ForCausalLM"},
      .defaults = {.vocab_size = 102400, .max_position_embeddings = 2048, .latent = true},
      .rope_style = RopeStyle::kInterleaved,
      .rope = {.scales_attention = true},
      .read = read_deepseek_v2,
      .list_layer = list_deepseek_layer,
      .harmless_keys = with_router_training_keys(
          {"seq_aux", "ep_size", "aux_loss_alpha", "pretraining_tp", "auto_map"}),
  };
  return kFamily;
}

}  // namespace headrace
