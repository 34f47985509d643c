// Qwen3-VL, dense and with experts: Qwen3 as decoder, whose pairs turn by three axes in turn; a
// tower with absolute positions that are resampled, some of whose blocks give rows that are added
// behind the decoder's first layers.

#include <cmath>
#include <string>
#include <vector>

#include "base/check.h"
#include "model/families/family.h"
#include "model/families/keys/expert_keys.h"
#include "model/families/moe_layer.h"
#include "model/families/vision/vision_block.h"
#include "model/families/vision/vision_keys.h"
#include "model/sources/vision_sources.h"

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

int32_t read_position_side(ConfigReader& reader) {
  const int64_t count =
      reader.integer("num_position_embeddings", 2304, 1, kMaxPositionSide * kMaxPositionSide);
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(count))));
  if (side * side != count) reader.fail_value("num_position_embeddings", "must be a square");
  return static_cast<int32_t>(side);
}

VisionConfig read_qwen3_tower(ConfigReader& reader, ConfigReader& /*model*/,
                              const ModelConfig& config) {
  VisionConfig out;
  read_tower_shape(reader, {.default_width = 1152, .default_depth = 27, .default_patch = 16}, out);
  out.merge_size = read_side(reader, "spatial_merge_size", 2, kMaxMergeSize);
  out.temporal_patch_size = read_side(reader, "temporal_patch_size", 2, kMaxMergeSize, 1);
  out.mlp_width = read_tower_width(reader, "intermediate_size", 4304);
  out.activation = read_activation(reader, "gelu_pytorch_tanh");
  out.position_side = read_position_side(reader);
  out.resamples = true;
  std::vector<int32_t> usual;
  for (const int32_t block : {8, 16, 24}) {
    if (block < out.depth) usual.push_back(block);
  }
  out.deepstack_blocks = read_blocks(reader, "deepstack_visual_indexes", usual, out.depth);
  if (out.deepstack_blocks.size() >= static_cast<size_t>(config.num_layers)) {
    reader.fail_value(
        "deepstack_visual_indexes",
        str_cat("must list fewer blocks than the decoder has layers (", config.num_layers, ")"));
  }
  require_out_size(reader, "out_hidden_size", 3584, config.hidden_size);
  reader.refuse_unknown_keys(harmless_tower_keys({}));
  return out;
}

VisionBlockSources list_qwen3_block(const VisionConfig& config, const VisionNaming& naming) {
  const int64_t width = config.width, wide = config.mlp_width;
  VisionBlockSources out = list_fused_attention(config, naming);
  out.up = naming.linear("up", {{"mlp.linear_fc1", wide}}, width, true);
  out.down = naming.linear("down", {{"mlp.linear_fc2", width}}, wide, true);
  return out;
}

/// `joins_first`: of a block, as opposed to the tower's own.
MergerSources list_merger(const ModelConfig& config, const VisionNaming& naming, bool joins_first) {
  const int64_t width = config.vision->width, merge = config.vision->merge_size;
  const int64_t joined = width * merge * merge;
  MergerSources out;
  out.joins_first = joins_first;
  out.norm = naming.norm("norm", "norm", joins_first ? joined : width, true);
  out.up = naming.linear("up", {{"linear_fc1", joined}}, joined, true);
  out.down = naming.linear("down", {{"linear_fc2", config.hidden_size}}, joined, true);
  return out;
}

VisionSources list_qwen3_tower(const ModelConfig& config, const TensorNaming& names) {
  const VisionConfig& vision = *config.vision;
  const VisionNaming naming(names.vision);
  const int64_t side = vision.position_side;
  VisionSources out;
  out.patches = naming.patches(vision, "patch_embed.proj", true, true);
  out.positions = naming.table("positions", "pos_embed.weight", side * side, vision.width);
  for (int32_t i = 0; i < vision.depth; ++i) {
    const std::string block = str_cat("blocks.", i, ".");
    out.blocks.push_back(list_qwen3_block(vision, naming.within(block, block)));
  }
  out.mergers.push_back(list_merger(config, naming.within("merger.", "merger."), false));
  for (size_t i = 0; i < vision.deepstack_blocks.size(); ++i) {
    out.mergers.push_back(list_merger(
        config,
        naming.within(str_cat("deepstack_merger_list.", i, "."), str_cat("deepstack.", i, ".")),
        true));
  }
  return out;
}

VisionFamily vision_of(std::string_view text_type) {
  return {.read = read_qwen3_tower,
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
