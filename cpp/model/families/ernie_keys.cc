#include "model/families/ernie_keys.h"

#include "model/families/family.h"

namespace headrace {

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

}  // namespace headrace
