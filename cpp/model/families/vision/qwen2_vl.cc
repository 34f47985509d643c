// Qwen2-VL and Qwen2.5-VL: Qwen2 as decoder; towers turned by height and width, without absolute
// positions.

#include <string>
#include <vector>

#include "base/check.h"
#include "model/families/family.h"
#include "model/families/vision/vision_block.h"
#include "model/families/vision/vision_keys.h"
#include "model/sources/vision_sources.h"

namespace headrace {

namespace {

constexpr int64_t kMaxWindowPixels = 1 << 20;

void read_qwen2_text(ConfigReader& reader, ModelConfig& config) {
  config.qkv_bias = true;  // always there; no key says so
  reader.require("use_sliding_window", false);
  require_agreeing_layer_types(reader, config);
}

void read_common(ConfigReader& reader, VisionConfig& out) {
  out.merge_size = read_side(reader, "spatial_merge_size", 2, kMaxMergeSize);
  out.temporal_patch_size = read_side(reader, "temporal_patch_size", 2, kMaxMergeSize, 1);
}

VisionConfig read_qwen2(ConfigReader& reader, ConfigReader& /*model*/, const ModelConfig& config) {
  VisionConfig out;
  read_tower_shape(reader, {.width = "embed_dim"}, out);
  read_common(reader, out);
  const int64_t wide = out.width * reader.integer("mlp_ratio", 4, 1, kMaxMlpRatio);
  out.mlp_width = static_cast<int32_t>(wide);
  out.activation = read_activation(reader, "quick_gelu");
  require_out_size(reader, "hidden_size", 3584, config.hidden_size);
  reader.refuse_unknown_keys(harmless_tower_keys({"spatial_patch_size"}));
  return out;
}

VisionConfig read_qwen2_5(ConfigReader& reader, ConfigReader& /*model*/,
                          const ModelConfig& config) {
  VisionConfig out;
  read_tower_shape(reader, {.default_width = 3584}, out);
  read_common(reader, out);
  out.mlp_width = read_tower_width(reader, "intermediate_size", 3420);
  out.gated_mlp = out.rms_norm = true;
  if (read_activation(reader, "silu") != Activation::kSilu) {
    reader.fail_unsupported("hidden_act", "a gated MLP of a tower has silu here");
  }
  const int64_t cell = int64_t{out.patch_size} * out.merge_size;
  const int64_t window = reader.integer("window_size", 112, 1, kMaxWindowPixels);
  if (window < cell) {
    reader.fail_value("window_size",
                      str_cat("must be at least patch_size * spatial_merge_size (", cell, ")"));
  }
  out.window = static_cast<int32_t>(window / cell);
  std::vector<int32_t> usual;
  for (const int32_t block : {7, 15, 23, 31}) {
    if (block < out.depth) usual.push_back(block);
  }
  out.full_blocks = read_blocks(reader, "fullatt_block_indexes", usual, out.depth);
  require_out_size(reader, "out_hidden_size", 3584, config.hidden_size);
  // Positions in a clip are given with the rows.
  reader.refuse_unknown_keys(harmless_tower_keys({"spatial_patch_size", "tokens_per_second"}));
  return out;
}

VisionBlockSources list_qwen2_block(const VisionConfig& config, const VisionNaming& naming) {
  const int64_t width = config.width, wide = config.mlp_width;
  VisionBlockSources out = list_fused_attention(config, naming);
  if (config.gated_mlp) {
    out.up = naming.linear("gate_up", {{"mlp.gate_proj", wide}, {"mlp.up_proj", wide}}, width, true,
                           WeightUse::kGateUp);
    out.down = naming.linear("down", {{"mlp.down_proj", width}}, wide, true);
  } else {
    out.up = naming.linear("up", {{"mlp.fc1", wide}}, width, true);
    out.down = naming.linear("down", {{"mlp.fc2", width}}, wide, true);
  }
  return out;
}

VisionSources list_qwen2_tower(const ModelConfig& config, const TensorNaming& names) {
  const VisionConfig& vision = *config.vision;
  const VisionNaming naming(names.vision);
  VisionSources out;
  out.patches = naming.patches(vision, "patch_embed.proj", true, false);
  for (int32_t i = 0; i < vision.depth; ++i) {
    const std::string block = str_cat("blocks.", i, ".");
    out.blocks.push_back(list_qwen2_block(vision, naming.within(block, block)));
  }
  const int64_t joined = int64_t{vision.width} * vision.merge_size * vision.merge_size;
  MergerSources& merger = out.mergers.emplace_back();
  const VisionNaming own = naming.within("merger.", "merger.");
  merger.norm = own.norm("norm", "ln_q", vision.width, !vision.rms_norm);
  merger.up = own.linear("up", {{"mlp.0", joined}}, joined, true);
  merger.down = own.linear("down", {{"mlp.2", config.hidden_size}}, joined, true);
  return out;
}

VisionFamily vision_of(VisionConfig (*read)(ConfigReader&, ConfigReader&, const ModelConfig&),
                       std::string_view text_type) {
  return {.read = read,
          .list = list_qwen2_tower,
          .text_prefixes = {"model.language_model.", "model."},
          .prefixes = {"model.visual.", "visual."},
          .text_types = {text_type},
          .nested_tie = true,
          .mrope = {.sections = {16, 24, 24}}};
}

constexpr FamilyDefaults kDefaults{.vocab_size = 152064,
                                   .hidden_size = 8192,
                                   .intermediate_size = 29568,
                                   .num_layers = 80,
                                   .num_heads = 64,
                                   .num_kv_heads = 8,
                                   .norm_eps = 1e-5,
                                   .rope_theta = 1e6};

}  // namespace

const Family& qwen2_vl_family() {
  static const VisionFamily kVision = vision_of(read_qwen2, "qwen2_vl_text");
  static const Family kFamily{
      .model_type = "qwen2_vl",
      .architectures = {"Qwen2VLForConditionalGeneration"},
      .defaults = kDefaults,
      .read = read_qwen2_text,
      .vision = &kVision,
      .harmless_keys = harmless_picture_keys({"sliding_window", "max_window_layers"}),
  };
  return kFamily;
}

const Family& qwen2_5_vl_family() {
  static const VisionFamily kVision = vision_of(read_qwen2_5, "qwen2_5_vl_text");
  static const Family kFamily{
      .model_type = "qwen2_5_vl",
      .architectures = {"Qwen2_5_VLForConditionalGeneration"},
      .defaults = kDefaults,
      .read = read_qwen2_text,
      .vision = &kVision,
      .harmless_keys = harmless_picture_keys({"sliding_window", "max_window_layers"}),
  };
  return kFamily;
}

}  // namespace headrace
