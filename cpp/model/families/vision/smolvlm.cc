// SmolVLM2 and Idefics3: a SigLIP tower that takes square tiles, pixel shuffle and one linear as
// connector, and a Llama whose rows of pictures have positions like text.

#include "base/check.h"
#include "model/families/family.h"
#include "model/families/vision/siglip_tower.h"
#include "model/families/vision/vision_keys.h"
#include "model/sources/vision_sources.h"

namespace headrace {

namespace {

void read_smolvlm_text(ConfigReader& reader, ModelConfig& config) {
  llama_family().read(reader, config);
  reader.require("qk_layer_norms", false);
  reader.require("use_resampler", false);
}

VisionConfig read_smolvlm_tower(ConfigReader& reader, ConfigReader& model,
                                const ModelConfig& /*config*/) {
  VisionConfig out;
  read_siglip_tower(reader, {.default_width = 1152, .default_depth = 12, .default_patch = 32}, out);
  out.patches_by_row = true;
  out.merge_size = static_cast<int32_t>(model.integer("scale_factor", 2, 1, kMaxMergeSize));
  if (out.position_side % out.merge_size != 0) {
    reader.fail_value("image_size",
                      str_cat("must hold a multiple of scale_factor (", out.merge_size,
                              ") patches of patch_size (", out.patch_size, ")"));
  }
  // How images are cut into tiles.
  reader.refuse_unknown_keys(
      harmless_tower_keys({"max_image_size", "size", "tie_word_embeddings", "use_base_siglip"}));
  return out;
}

VisionSources list_smolvlm_tower(const ModelConfig& config, const TensorNaming& names) {
  const VisionConfig& vision = *config.vision;
  VisionSources out =
      list_siglip_tower(vision, VisionNaming(names.vision).within("vision_model.", ""));
  const int64_t joined = int64_t{vision.width} * vision.merge_size * vision.merge_size;
  out.mergers.emplace_back().down =
      VisionNaming(names.vision)
          .linear("merger.down", {{"connector.modality_projection.proj", config.hidden_size}},
                  joined, false);
  return out;
}

const VisionFamily& tiled_vision() {
  static const VisionFamily kVision{.read = read_smolvlm_tower,
                                    .list = list_smolvlm_tower,
                                    .text_prefixes = {"model.text_model."},
                                    .prefixes = {"model."},
                                    .text_types = {"llama"}};
  return kVision;
}

Family tiled_family(std::string_view model_type, std::string_view architecture) {
  return {.model_type = model_type,
          .architectures = {architecture},
          .defaults = llama_family().defaults,
          .read = read_smolvlm_text,
          .vision = &tiled_vision(),
          // perceiver_config is that of a resampler which isn't used.
          .harmless_keys = harmless_picture_keys({"is_llama_config", "neftune_noise_alpha",
                                                  "perceiver_config", "pixel_shuffle_factor"})};
}

}  // namespace

const Family& smolvlm_family() {
  static const Family kFamily = tiled_family("smolvlm", "SmolVLMForConditionalGeneration");
  return kFamily;
}

const Family& idefics3_family() {
  static const Family kFamily = tiled_family("idefics3", "Idefics3ForConditionalGeneration");
  return kFamily;
}

}  // namespace headrace
