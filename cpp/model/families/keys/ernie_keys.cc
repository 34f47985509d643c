#include "model/families/keys/ernie_keys.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "model/families/family.h"
#include "model/families/keys/expert_keys.h"

namespace headrace {

namespace {

constexpr int64_t kMaxLayerNumber = int64_t{1} << 30;
constexpr double kMaxNormMin = 1e6;

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

}  // namespace

void require_plain_ernie(ConfigReader& reader, const ModelConfig& config) {
  reader.require("use_rmsnorm", true);
  reader.require("compression_ratio", 1);  // divides the positions
  require_agreeing_layer_types(reader, config);
}

std::vector<std::string_view> paddle_harmless_keys() {
  return {
      "fuse_*",
      "use_fused_*",
      "use_flash_*",
      "use_sparse_*",
      "use_var_len_*",
      "use_recompute*",
      "recompute*",
      "refined_recompute",
      "skip_recompute_ops",
      "no_recompute_layers",
      "tensor_parallel_*",
      "tensor_model_parallel_*",
      "sequence_parallel",
      "pipeline_parallel_*",
      "pp_seg_method",
      "virtual_pp_degree",
      "micro_batch_size",
      "num_acc_steps",
      "token_balance_*",
      "weight_share_add_bias",
      "max_sequence_length",
      "ignored_index",
      "paddleformers_version",
      "paddlenlp_version",
      "dpo_config",
      "num_nextn_predict_layers",
      "multi_token_pred_lambda",
      "enable_mtp_magic_send",
      "disable_ffn_model_parallel",
      "loss_subbatch_*",
      "enable_delay_scale_loss",
      "freq_allocation",
  };
}

std::vector<std::string_view> ernie_moe_harmless_keys() {
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

std::vector<int64_t> read_each_group(ConfigReader& reader, std::string_view key, int64_t fallback,
                                     int64_t min, int64_t max, size_t groups) {
  const JsonValue* value = reader.find(key);
  if (value == nullptr) return std::vector<int64_t>(groups, fallback);
  if (groups == 1 || !value->is_array()) {
    return std::vector<int64_t>(groups, reader.integer(key, fallback, min, max));
  }
  if (value->size() != groups) {
    reader.fail_value(key, str_cat("must be a whole number, or a list of ", groups,
                                   ", one for each group of experts"));
  }
  std::vector<int64_t> out;
  for (const JsonValue& entry : value->array()) {
    const JsonValue holder{JsonValue::Object{{std::string(key), entry}}};
    ConfigReader one(holder, reader.origin());
    out.push_back(one.optional_integer(key, min, max).value_or(fallback));
  }
  return out;
}

std::vector<bool> read_ernie_sparse_layers(ConfigReader& reader, int32_t num_layers,
                                           size_t groups) {
  const int64_t interval = reader.integer("moe_layer_interval", 1, 1, kMaxLayerNumber);
  const auto starts =
      read_each_group(reader, "moe_layer_start_index", 1, 0, kMaxLayerNumber, groups);
  // -1, null and a layer behind the last all mean the last one.
  const auto ends = read_each_group(reader, "moe_layer_end_index", -1, -1, kMaxLayerNumber, groups);
  const auto layers_of = [&](size_t group) {
    std::vector<bool> out;
    for (int32_t layer = 0; layer < num_layers; ++layer) {
      const bool within = layer >= starts[group] && (ends[group] == -1 || layer <= ends[group]);
      out.push_back((layer + 1) % interval == 0 && within);
    }
    return out;
  };
  const std::vector<bool> out = layers_of(0);
  for (size_t group = 1; group < groups; ++group) {
    if (layers_of(group) == out) continue;
    const char* key = starts[group] != starts[0] ? "moe_layer_start_index" : "moe_layer_end_index";
    reader.fail_unsupported(key, "all groups of experts must be in the same layers");
  }
  return out;
}

void read_ernie_router(ConfigReader& reader, MoeConfig& moe) {
  refuse_other_routers(reader);
  read_shared_experts(reader, "moe_num_shared_experts", 2, moe);
  moe.router.norm_min = static_cast<float>(reader.number("moe_norm_min", 1e-12, 0.0, kMaxNormMin));
  moe.has_correction = reader.flag("moe_use_aux_free", true);
}

}  // namespace headrace
