// Gemma 3 with pictures: a SigLIP tower that takes squares of one size, the means of squares of
// patches, an RMS norm and one matrix as projector; in the decoder, which is the text model's, a
// picture's rows see each other both ways.

#include <cmath>
#include <string>

#include "base/check.h"
#include "model/families/family.h"
#include "model/families/vision/siglip_tower.h"

namespace headrace {

namespace {

constexpr std::string_view kTower = "vision_tower.";

void read_gemma3_text(ConfigReader& reader, ModelConfig& config) {
  gemma3_text_family().read(reader, config);
  reader.require("use_bidirectional_attention", false);
}

/// mm_tokens_per_image, as the side of the squares that it makes of so many patches a side.
int32_t read_merge_size(ConfigReader& model, int32_t patches) {
  constexpr const char* kKey = "mm_tokens_per_image";
  const int64_t rows = model.integer(kKey, 256, 1, kMaxPositionSide * kMaxPositionSide);
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(rows))));
  if (side * side != rows || patches % side != 0 || patches / side > kMaxMergeSize) {
    model.fail_value(kKey, str_cat("must be the number of equal squares, of at most ",
                                   kMaxMergeSize, " patches a side, that ", patches, " x ", patches,
                                   " patches (vision_config) are cut into"));
  }
  return static_cast<int32_t>(patches / side);
}

VisionConfig read_gemma3_tower(ConfigReader& reader, ConfigReader& model,
                               const ModelConfig& /*config*/) {
  VisionConfig out;
  read_siglip_tower(
      reader, {.default_width = 768, .default_depth = 12, .default_heads = 12, .default_patch = 16},
      out);
  out.merge_size = read_merge_size(model, out.position_side);
  out.out_norm_eps = out.norm_eps;
  out.both_ways = true;
  reader.require("vision_use_head", false);  // SigLIP's own pooling
  reader.refuse_unknown_keys(harmless_tower_keys({"projection_dim"}));
  return out;
}

VisionSources list_gemma3_tower(const ModelConfig& config, const TensorNaming& names) {
  const VisionConfig& vision = *config.vision;
  VisionSources out = list_siglip_tower(vision, VisionNaming(names.vision));
  const std::string around = names.vision.substr(0, names.vision.find(kTower));
  const VisionNaming projector(around + "multi_modal_projector.");
  MergerSources& merger = out.mergers.emplace_back();
  merger.averages = true;
  merger.norm = projector.norm("merger.norm", "mm_soft_emb_norm", vision.width, false);
  merger.norm.weight.offset = config.norm_offset;
  merger.down.matrix = {
      .name = "vision.merger.down",
      .parts = {{around + "multi_modal_projector.mm_input_projection_weight", config.hidden_size}},
      .k = vision.width,
      .transposed = true};
  return out;
}

}  // namespace

const Family& gemma3_family() {
  static const VisionFamily kVision{
      .read = read_gemma3_tower,
      .list = list_gemma3_tower,
      .text_prefixes = {"language_model.model.", "model.language_model."},
      // transformers 5 leaves the second module out.
      .prefixes = {"vision_tower.vision_model.", "vision_tower.",
                   "model.vision_tower.vision_model.", "model.vision_tower."},
      .text_types = {"gemma3_text"},
      .heads = {"language_model.lm_head.weight", "lm_head.weight"}};
  static const Family kFamily = [] {
    Family out = gemma3_text_family();
    out.model_type = "gemma3";
    out.architectures = {"Gemma3ForConditionalGeneration"};
    out.head_if_stored = true;  // tie_word_embeddings, inside and outside, are at odds
    out.read = read_gemma3_text;
    out.vision = &kVision;
    out.harmless_keys = harmless_picture_keys(out.harmless_keys);
    for (const char* key : {"boi_token_index", "eoi_token_index", "image_token_index",
                            "boi_token_id", "eoi_token_id"}) {
      out.harmless_keys.emplace_back(key);
    }
    return out;
  }();
  return kFamily;
}

}  // namespace headrace
