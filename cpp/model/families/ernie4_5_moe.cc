#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/families/ernie_keys.h"
#include "model/families/expert_keys.h"
#include "model/families/family.h"
#include "model/families/llama_layer.h"
#include "model/families/moe_layer.h"

namespace headrace {

namespace {

constexpr int64_t kMaxLayerNumber = int64_t{1} << 30;
constexpr int64_t kMaxSharedExperts = 1024;
constexpr double kMaxNormMin = 1e6;

/// Every `moe_layer_interval`-th layer of those from start to end has experts.
void read_sparse_layers(ConfigReader& reader, ModelConfig& config) {
  const int64_t interval = reader.integer("moe_layer_interval", 1, 1, kMaxLayerNumber);
  const int64_t start = reader.integer("moe_layer_start_index", 1, 0, kMaxLayerNumber);
  // -1, null and a layer behind the last all mean the last one.
  const int64_t end =
      reader.optional_integer("moe_layer_end_index", -1, kMaxLayerNumber).value_or(-1);
  std::vector<bool>& sparse = config.moe.sparse_layers;
  for (size_t i = 0; i < sparse.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    sparse[i] = (layer + 1) % interval == 0 && layer >= start && (end == -1 || layer <= end);
  }
}

void read_shared_experts(ConfigReader& reader, MoeConfig& moe) {
  const int64_t count = reader.integer("moe_num_shared_experts", 2, 0, kMaxSharedExperts);
  const int64_t width = count * moe.expert_width;
  if (width > kMaxIntermediate) {
    reader.fail_value("moe_num_shared_experts",
                      str_cat("must keep all shared experts together (", width, " columns) within ",
                              kMaxIntermediate));
  }
  moe.shared_width = static_cast<int32_t>(width);
}

void refuse_other_routers(ConfigReader& reader) {
  reader.require("moe_gate_act", "softmax");
  reader.require("scoring_func", "softmax");
  reader.require("moe_norm_gate_logits", true);
  reader.require("moe_group_experts", false);
  reader.require("moe_gate_scale", false);
  if (const std::string gate = reader.text("moe_gate", "topk");
      gate != "topk" && gate != "top2_fused") {
    reader.fail_unsupported("moe_gate", "this build knows topk and top2_fused");
  }
}

void read_ernie4_5_moe(ConfigReader& reader, ModelConfig& config) {
  reader.require("use_bias", false);
  reader.require("rope_reorder", false);
  require_plain_ernie(reader, config);
  refuse_other_routers(reader);
  MoeConfig& moe = config.moe;
  read_expert_counts(reader, {{"moe_num_experts", "num_experts"}, 64},
                     {{"moe_k", "num_experts_per_tok"}, 6}, config);
  read_sparse_layers(reader, config);
  moe.expert_width = read_width(reader, "moe_intermediate_size", 1536);
  read_shared_experts(reader, moe);
  moe.router.norm_min = static_cast<float>(reader.number("moe_norm_min", 1e-12, 0.0, kMaxNormMin));
  moe.has_correction = reader.flag("moe_use_aux_free", true);
}

LayerSources list_layer(const ModelConfig& config, const LayerNaming& naming) {
  return list_moe_layer(config, naming,
                        {.correction = "mlp.moe_statics.e_score_correction_bias",
                         .correction_is_row = true,
                         .shared = "mlp.shared_experts."});
}

/// A dense layer, whichever of the model's have experts.
MtpSources list_mtp(const ModelConfig& config, const TensorNaming& naming) {
  const LayerNaming names(naming, "mtp.", "");
  MtpSources out;
  out.embedding_norm = names.norm("embedding_norm", "mtp_emb_norm.0", config.hidden_size);
  out.hidden_norm = names.norm("hidden_norm", "mtp_hidden_norm.0", config.hidden_size);
  out.join = names.matrix("join", {{"mtp_linear_proj.0", config.hidden_size}},
                          2 * int64_t{config.hidden_size});
  out.layer = list_llama_layer(config, LayerNaming(naming, "mtp.", "mtp_block.0."));
  return out;
}

std::vector<std::string_view> harmless_keys() {
  std::vector<std::string_view> keys = paddle_harmless_keys();
  // How the routers were trained, and how experts are spread over devices.
  for (const std::string_view key : {"moe_capacity",
                                     "moe_gate_detach",
                                     "moe_group",
                                     "moe_aux_loss_lambda",
                                     "moe_orthogonal_loss_lambda",
                                     "moe_group_orthogonal_loss",
                                     "moe_z_loss_*",
                                     "moe_dropout_prob",
                                     "moe_reverse_token_drop",
                                     "moe_all_to_all_dropout",
                                     "moe_use_hard_gate",
                                     "moe_dense_experts_token_type_id",
                                     "moe_multimodal_dispatch_use_allgather",
                                     "sinkhorn_2gate",
                                     "sinkhorn_temp",
                                     "global_aux_loss",
                                     "use_ep_comm_overlap",
                                     "fp8_mem_configs",
                                     "fp8_fused_ops_configs",
                                     "using_precision_check"}) {
    keys.push_back(key);
  }
  return with_router_training_keys(std::move(keys));
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
                   .rms_norm_eps = 1e-5,
                   .rope_theta = 500000.0,
                   .tie_word_embeddings = true},
      .rope_style = RopeStyle::kInterleaved,
      .has_paddle_layout = true,
      .read = read_ernie4_5_moe,
      .list_layer = list_layer,
      .list_mtp = list_mtp,
      .harmless_keys = harmless_keys(),
  };
  return kFamily;
}

}  // namespace headrace
