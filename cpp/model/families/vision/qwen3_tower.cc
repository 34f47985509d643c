#include "model/families/vision/qwen3_tower.h"

#include <cmath>
#include <string>

#include "base/check.h"
#include "model/families/vision/vision_block.h"
#include "model/families/vision/vision_keys.h"

namespace headrace {

namespace {

int32_t read_position_side(ConfigReader& reader) {
  const int64_t count =
      reader.integer("num_position_embeddings", 2304, 1, kMaxPositionSide * kMaxPositionSide);
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(count))));
  if (side * side != count) reader.fail_value("num_position_embeddings", "must be a square");
  return static_cast<int32_t>(side);
}

}  // namespace

VisionConfig read_qwen3_tower(ConfigReader& reader, const ModelConfig& config,
                              const std::vector<int32_t>& usual_deepstack) {
  VisionConfig out;
  read_tower_shape(reader, {.default_width = 1152, .default_depth = 27, .default_patch = 16}, out);
  out.merge_size = read_side(reader, "spatial_merge_size", 2, kMaxMergeSize);
  out.temporal_patch_size = read_side(reader, "temporal_patch_size", 2, kMaxMergeSize, 1);
  out.mlp_width = read_tower_width(reader, "intermediate_size", 4304);
  out.activation = read_activation(reader, "gelu_pytorch_tanh");
  out.position_side = read_position_side(reader);
  out.resamples = true;
  std::vector<int32_t> usual;
  for (const int32_t block : usual_deepstack) {
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

namespace {

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

}  // namespace

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

}  // namespace headrace
