#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/families/family.h"
#include "model/families/keys/ernie_keys.h"
#include "model/families/keys/expert_keys.h"
#include "model/families/llama_layer.h"
#include "model/families/moe_layer.h"
#include "model/families/mtp_layer.h"

namespace headrace {

namespace {

void read_ernie4_5_moe(ConfigReader& reader, ModelConfig& config) {
  reader.require("use_bias", false);
  reader.require("rope_reorder", false);
  require_plain_ernie(reader, config);
  MoeConfig& moe = config.moe;
  read_expert_counts(reader, {{"moe_num_experts", "num_experts"}, 64},
                     {{"moe_k", "num_experts_per_tok"}, 6}, config);
  moe.sparse_layers = read_ernie_sparse_layers(reader, config.num_layers);
  moe.expert_width = read_width(reader, "moe_intermediate_size", 1536);
  read_ernie_router(reader, moe);
}

LayerSources list_layer(const ModelConfig& config, const LayerNaming& naming) {
  return list_moe_layer(config, naming,
                        {.correction = "mlp.moe_statics.e_score_correction_bias",
                         .correction_is_row = true,
                         .shared = "mlp.shared_experts."});
}

/// A dense layer, whichever of the model's have experts.
MtpSources list_ernie_mtp(const ModelConfig& config, const TensorNaming& naming) {
  MtpSources out = list_mtp_block(config, LayerNaming(naming, "mtp.", ""),
                                  {.embedding_norm = "mtp_emb_norm.0",
                                   .hidden_norm = "mtp_hidden_norm.0",
                                   .join = "mtp_linear_proj.0"});
  out.layer = list_llama_layer(config, LayerNaming(naming, "mtp.", "mtp_block.0."));
  return out;
}

}  // namespace

const Family& ernie4_5_moe_family() {
  static const Family kFamily{
      .model_type = "ernie4_5_moe",
      .architectures = {"Ernie4_5_MoeForCausalLM"},
      .defaults = {.vocab_size = 103424,
                   .hidden_size = 2560,
                   .intermediate_size = 12288,
                   .num_layers = 28,
                   .num_heads = 20,
                   .num_kv_heads = 4,
                   .max_position_embeddings = 131072,
                   .norm_eps = 1e-5,
                   .rope_theta = 500000.0,
                   .tie_word_embeddings = true},
      .rope_style = RopeStyle::kInterleaved,
      .has_paddle_layout = true,
      .read = read_ernie4_5_moe,
      .list_layer = list_layer,
      .list_mtp = list_ernie_mtp,
      .harmless_keys = ernie_moe_harmless_keys(),
  };
  return kFamily;
}

}  // namespace headrace
