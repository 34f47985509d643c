// Hunyuan's dense models: the norms of queries and keys come behind RoPE.

#include "model/families/family.h"
#include "model/families/keys/layer_keys.h"
#include "model/families/llama_layer.h"

namespace headrace {

namespace {

void read_hunyuan(ConfigReader& reader, ModelConfig& config) {
  read_attention_bias(reader, config);
  config.qk_norm = true;
  config.qk_norm_kind = QkNorm::kHeadAfterRope;
  reader.require("use_qk_norm", true);
  reader.require("mlp_bias", false);
  reader.require("use_cla", false);
  reader.require("use_mla", false);
  reader.require("num_experts", 1);
  reader.require("norm_type", "rms");
  reader.require("use_rotary_pos_emb", true);
  reader.require("position_embedding_xdrope", false);
  reader.require("attention_head_dim", config.head_dim);
}

LayerSources list_hunyuan_layer(const ModelConfig& config, const LayerNaming& naming) {
  return list_named_layer(
      config, naming, {.q_norm = "self_attn.query_layernorm", .k_norm = "self_attn.key_layernorm"});
}

}  // namespace

const Family& hunyuan_v1_dense_family() {
  static const Family kFamily{
      .model_type = "hunyuan_v1_dense",
      .architectures = {"HunYuanDenseV1ForCausalLM"},
      .defaults = {.vocab_size = 290943, .max_position_embeddings = 2048, .norm_eps = 1e-5},
      .rope = {.fixed_alpha = true},
      .read = read_hunyuan,
      .list_layer = list_hunyuan_layer,
      .harmless_keys = {"cla_share_factor",
                        "moe_*",
                        "eod_token_id",
                        "im_*",
                        "pad_id",
                        "sep_*",
                        "kv_lora_rank",
                        "q_lora_rank",
                        "qk_*",
                        "v_head_dim",
                        "org_vocab_size",
                        "group_limited_greedy",
                        "mask_init_id",
                        "pool_type",
                        "text_*_id",
                        "num_shared_expert",
                        "use_mixed_mlp_moe",
                        "add_classification_head",
                        "class_num",
                        "dense_list",
                        "enable_lm_head_fp32",
                        "num_media_embeds",
                        "video_*",
                        "vit_*",
                        "anyres_*",
                        "skip_cls_token",
                        "max_image_size",
                        "pretraining_tp"},
  };
  return kFamily;
}

}  // namespace headrace
