#include "model/families/family.h"

namespace headrace {

namespace {

void read_ernie4_5(ConfigReader& reader, ModelConfig& config) {
  const bool bias = reader.flag("use_bias", false);
  config.qkv_bias = config.o_bias = config.mlp_bias = bias;
  reader.require("use_rmsnorm", true);
  reader.require("compression_ratio", 1);  // divides the positions
  require_agreeing_layer_types(reader, config);
}

}  // namespace

const Family& ernie4_5_family() {
  static const Family kFamily{
      .model_type = "ernie4_5",
      // Both spellings occur in both layouts.
      .architectures = {"Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"},
      .defaults = {.vocab_size = 103424,
                   .hidden_size = 1024,
                   .intermediate_size = 3072,
                   .num_layers = 18,
                   .num_heads = 16,
                   .num_kv_heads = 2,
                   .head_dim = 128,
                   .max_position_embeddings = 131072,
                   .rms_norm_eps = 1e-5,
                   .rope_theta = 500000.0,
                   .tie_word_embeddings = true},
      .rope_style = RopeStyle::kInterleaved,
      .has_paddle_layout = true,
      .read = read_ernie4_5,
      // How Paddle trained and how it runs, not what it computes.
      .harmless_keys = {"fuse_*",
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
                        "freq_allocation"},
  };
  return kFamily;
}

}  // namespace headrace
