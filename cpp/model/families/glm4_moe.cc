// GLM-4.5, 4.6 and 4.7, and GLM-4.5-Air.

#include "model/families/family.h"
#include "model/families/keys/expert_keys.h"
#include "model/families/llama_layer.h"
#include "model/families/moe_layer.h"
#include "model/families/mtp_layer.h"

namespace headrace {

namespace {

constexpr ExpertNames kGlm4MoeNames{.correction = "mlp.gate.e_score_correction_bias",
                                    .shared = "mlp.shared_experts."};

void read_glm4_moe(ConfigReader& reader, ModelConfig& config) {
  config.qkv_bias = reader.flag("attention_bias", false);
  config.qk_norm = reader.flag("use_qk_norm", false);
  MoeConfig& moe = config.moe;
  read_expert_counts(reader, {{"n_routed_experts", "num_local_experts"}, 128},
                     {{"num_experts_per_tok"}, 8}, config);
  read_dense_layers(reader, 1, config);
  moe.expert_width = read_width(reader, "moe_intermediate_size", 1408);
  read_shared_experts(reader, "n_shared_experts", 1, moe);
  moe.has_correction = true;
  reader.require("scoring_func", "sigmoid");
  reader.require("topk_method", "noaux_tc");
  read_sigmoid_router(reader, moe.router);
  moe.router.norm_eps = 1e-20f;
  read_expert_groups(reader, moe.router);
}

LayerSources list_glm4_moe_layer(const ModelConfig& config, const LayerNaming& naming) {
  return list_moe_layer(config, naming, kGlm4MoeNames);
}

/// With experts, whichever of the model's layers have them. The model's embedding and head are
/// there once more.
MtpSources list_glm4_mtp(const ModelConfig& config, const TensorNaming& naming) {
  const LayerNaming layer = naming_behind(config, naming);
  MtpSources out = list_mtp_behind(config, layer);
  out.layer = list_norms(config, layer);
  out.layer.mixer = list_attention(config, layer);
  out.layer.feed_forward = list_experts(config, layer, kGlm4MoeNames);
  return out;
}

}  // namespace

const Family& glm4_moe_family() {
  static const Family kFamily{
      .model_type = "glm4_moe",
      .architectures = {"Glm4MoeForCausalLM"},
      .defaults = {.vocab_size = 151552,
                   .intermediate_size = 10944,
                   .num_layers = 46,
                   .num_heads = 96,
                   .num_kv_heads = 8,
                   .max_position_embeddings = 131072,
                   .norm_eps = 1e-5},
      .rope = {.partial_rotary = 0.5},
      .read = read_glm4_moe,
      .list_layer = list_glm4_moe_layer,
      .list_mtp = list_glm4_mtp,
      .mtp_is_layer = true,
      .harmless_keys = with_router_training_keys({"num_nextn_predict_layers", "num_mtp_layers"}),
  };
  return kFamily;
}

}  // namespace headrace
