// GLM-4.7-Flash: latent attention, experts as GLM-4.5 has them.

#include <algorithm>
#include <string_view>
#include <vector>

#include "model/families/keys/expert_keys.h"
#include "model/families/latent/latent_layer.h"

namespace headrace {

namespace {

constexpr ExpertNames kGlmLiteNames{.correction = "mlp.gate.e_score_correction_bias",
                                    .shared = "mlp.shared_experts."};

/// mlp_layer_types, or first_k_dense_replace where it is absent.
void read_sparse_layers(ConfigReader& reader, ModelConfig& config) {
  std::vector<bool>& sparse = config.moe.sparse_layers;
  const int64_t dense = reader.integer("first_k_dense_replace", 1, 0, config.num_layers);
  std::fill_n(sparse.begin(), dense, false);
  const JsonValue* const types = reader.find("mlp_layer_types");
  if (types == nullptr || types->empty()) return;
  const char* const expected = "must list dense or sparse for each hidden layer";
  if (!types->is_array() || types->size() != sparse.size()) {
    reader.fail_value("mlp_layer_types", expected);
  }
  for (size_t i = 0; i < sparse.size(); ++i) {
    const JsonValue& type = types->array()[i];
    const std::string_view name = type.is_string() ? std::string_view(type.text()) : "";
    if (name != "dense" && name != "sparse") reader.fail_value("mlp_layer_types", expected);
    sparse[i] = name == "sparse";
  }
}

void read_glm4_moe_lite(ConfigReader& reader, ModelConfig& config) {
  read_latent(reader, {768, 512, 192, 64, 256}, config);
  reader.require("rope_interleave", true);
  MoeConfig& moe = config.moe;
  read_expert_counts(reader, {{"n_routed_experts", "num_local_experts"}, 64},
                     {{"num_experts_per_tok"}, 4}, config);
  read_sparse_layers(reader, config);
  moe.expert_width = read_width(reader, "moe_intermediate_size", 1536);
  read_shared_experts(reader, "n_shared_experts", 1, moe);
  moe.has_correction = true;
  reader.require("scoring_func", "sigmoid");
  reader.require("topk_method", "noaux_tc");
  read_sigmoid_router(reader, moe.router);
  if (!reader.has_key("routed_scaling_factor")) moe.router.scale = 1.8f;
  moe.router.norm_eps = 1e-20f;
  read_expert_groups(reader, moe.router);
}

LayerSources list_glm_lite_layer(const ModelConfig& config, const LayerNaming& naming) {
  return list_latent_layer(config, naming, kGlmLiteNames);
}

}  // namespace

const Family& glm4_moe_lite_family() {
  static const Family kFamily{
      .model_type = "glm4_moe_lite",
      .architectures = {"Glm4MoeLiteForCausalLM"},
      .defaults = {.vocab_size = 154880,
                   .hidden_size = 2048,
                   .intermediate_size = 10240,
                   .num_layers = 47,
                   .num_heads = 20,
                   .max_position_embeddings = 202752,
                   .norm_eps = 1e-5,
                   .latent = true},
      .rope_style = RopeStyle::kInterleaved,
      .rope = {.scales_attention = true},
      .read = read_glm4_moe_lite,
      .list_layer = list_glm_lite_layer,
      .mtp_is_layer = true,
      .harmless_keys = with_router_training_keys(
          {"num_nextn_predict_layers", "num_mtp_layers", "pretraining_tp"}),
  };
  return kFamily;
}

}  // namespace headrace
