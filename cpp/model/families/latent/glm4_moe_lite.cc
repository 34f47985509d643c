// GLM-4.7-Flash: latent attention, experts as GLM-4.5 has them.

#include <string_view>
#include <vector>

#include "model/families/keys/expert_keys.h"
#include "model/families/latent/latent_layer.h"

namespace headrace {

namespace {

/// mlp_layer_types, where it is there.
void read_layer_types(ConfigReader& reader, std::vector<bool>& sparse) {
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
  read_latent_experts(reader,
                      {.dense_layers = 1,
                       .experts = 64,
                       .top_k = 4,
                       .width = 1536,
                       .shared = 1,
                       .groups = 1,
                       .top_groups = 1,
                       .scale = 1.8f},
                      config);
  read_layer_types(reader, config.moe.sparse_layers);
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
      .list_layer = list_latent_expert_layer,
      .list_mtp = list_latent_mtp,
      .mtp_is_layer = true,
      .harmless_keys = with_router_training_keys(
          {"num_nextn_predict_layers", "num_mtp_layers", "pretraining_tp"}),
  };
  return kFamily;
}

}  // namespace headrace
