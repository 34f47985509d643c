// Qwen3-VL, dense and with experts: Qwen3 as decoder, whose pairs turn by three axes in turn.

#include "model/families/family.h"
#include "model/families/keys/expert_keys.h"
#include "model/families/moe_layer.h"
#include "model/families/vision/qwen3_tower.h"
#include "model/families/vision/vision_keys.h"

namespace headrace {

namespace {

void read_dense(ConfigReader& reader, ModelConfig& config) {
  config.qk_norm = true;
  config.qkv_bias = config.o_bias = reader.flag("attention_bias", false);
  reader.require("use_sliding_window", false);
  require_agreeing_layer_types(reader, config);
}

void read_sparse(ConfigReader& reader, ModelConfig& config) {
  read_dense(reader, config);
  MoeConfig& moe = config.moe;
  read_expert_counts(reader, {{"num_experts", "num_local_experts"}, 60},
                     {{"num_experts_per_tok"}, 4}, config);
  read_qwen_sparse_layers(reader, config);
  moe.expert_width = read_width(reader, "moe_intermediate_size", 1408);
  reader.require("norm_topk_prob", true);
  moe.router.normalize = true;
}

LayerSources list_sparse(const ModelConfig& config, const LayerNaming& naming) {
  return list_moe_layer(config, naming, {});
}

VisionConfig read_qwen3_vl_tower(ConfigReader& reader, ConfigReader& /*model*/,
                                 const ModelConfig& config) {
  return read_qwen3_tower(reader, config, {8, 16, 24});
}

VisionFamily vision_of(std::string_view text_type) {
  return {.read = read_qwen3_vl_tower,
          .list = list_qwen3_tower,
          .text_prefixes = {"model.language_model.", "model."},
          .prefixes = {"model.visual.", "visual."},
          .text_types = {text_type},
          .mrope = {.sections = {24, 20, 20}, .order = MropeOrder::kInTurn}};
}

}  // namespace

const Family& qwen3_vl_family() {
  static const VisionFamily kVision = vision_of("qwen3_vl_text");
  static const Family kFamily{
      .model_type = "qwen3_vl",
      .architectures = {"Qwen3VLForConditionalGeneration"},
      .defaults = {.vocab_size = 151936,
                   .intermediate_size = 22016,
                   .num_kv_heads = 32,
                   .head_dim = 128,
                   .max_position_embeddings = 128000,
                   .rope_theta = 5e5},
      .read = read_dense,
      .vision = &kVision,
      .harmless_keys = harmless_picture_keys({"sliding_window", "max_window_layers"}),
  };
  return kFamily;
}

const Family& qwen3_vl_moe_family() {
  static const VisionFamily kVision = vision_of("qwen3_vl_moe_text");
  static const Family kFamily{
      .model_type = "qwen3_vl_moe",
      .architectures = {"Qwen3VLMoeForConditionalGeneration"},
      .defaults = {.vocab_size = 151936,
                   .hidden_size = 2048,
                   .intermediate_size = 5632,
                   .num_layers = 24,
                   .num_heads = 16,
                   .num_kv_heads = 16,
                   .max_position_embeddings = 128000,
                   .rope_theta = 5e5},
      .read = read_sparse,
      .list_layer = list_sparse,
      .vision = &kVision,
      .harmless_keys =
          with_router_training_keys(harmless_picture_keys({"sliding_window", "max_window_layers"})),
  };
  return kFamily;
}

}  // namespace headrace
