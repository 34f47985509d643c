// DeepSeek-V3, V3.1 and R1, and models of their kind: latent attention, experts of the best groups
// by sigmoids and a correction.

#include "model/families/keys/expert_keys.h"
#include "model/families/latent/latent_layer.h"

namespace headrace {

namespace {

void read_deepseek_v3(ConfigReader& reader, ModelConfig& config) {
  read_latent(reader, {1536, 512, 128, 64, 128}, config);
  reader.require("rope_interleave", true);
  reader.require("moe_layer_freq", 1);
  read_latent_experts(reader,
                      {.dense_layers = 3,
                       .experts = 256,
                       .top_k = 8,
                       .width = 2048,
                       .shared = 1,
                       .groups = 8,
                       .top_groups = 4,
                       .scale = 2.5f},
                      config);
}

}  // namespace

const Family& deepseek_v3_family() {
  static const Family kFamily{
      .model_type = "deepseek_v3",
      .architectures = {"DeepseekV3ForCausalLM"},
      .defaults = {.vocab_size = 129280,
                   .hidden_size = 7168,
                   .intermediate_size = 18432,
                   .num_layers = 61,
                   .num_heads = 128,
                   .max_position_embeddings = 4096,
                   .latent = true},
      .rope_style = RopeStyle::kInterleaved,
      .rope = {.scales_attention = true},
      .read = read_deepseek_v3,
      .list_layer = list_latent_expert_layer,
      .list_mtp = list_latent_mtp,
      .mtp_is_layer = true,
      .harmless_keys =
          with_router_training_keys({"seq_aux", "ep_size", "aux_loss_alpha", "pretraining_tp",
                                     "auto_map", "num_nextn_predict_layers", "num_mtp_layers"}),
  };
  return kFamily;
}

}  // namespace headrace
