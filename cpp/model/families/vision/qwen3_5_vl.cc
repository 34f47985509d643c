// Qwen3.5, 3.6 and 3.8 with their towers, which are Qwen3-VL's: the text models are the same, but
// that the pairs that turn do so by three axes in turn.

#include "model/families/family.h"
#include "model/families/vision/qwen3_tower.h"
#include "model/families/vision/vision_keys.h"

namespace headrace {

namespace {

VisionConfig read_qwen3_5_tower(ConfigReader& reader, ConfigReader& /*model*/,
                                const ModelConfig& config) {
  return read_qwen3_tower(reader, config, {});
}

VisionFamily vision_beside(const Family& text) {
  return {.read = read_qwen3_5_tower,
          .list = list_qwen3_tower,
          .text_prefixes = {"model.language_model.", "model."},
          .prefixes = {"model.visual.", "visual."},
          .text_types = {text.model_type},
          .mrope = {.sections = {11, 11, 10}, .order = MropeOrder::kInTurn}};
}

Family with_pictures(const Family& text, std::string_view model_type, std::string_view architecture,
                     const VisionFamily& vision) {
  Family out = text;
  out.model_type = model_type;
  out.architectures = {architecture};
  out.head_if_stored = true;  // tie_word_embeddings, inside and outside, are at odds
  out.vision = &vision;
  out.harmless_keys = harmless_picture_keys(text.harmless_keys);
  return out;
}

}  // namespace

const Family& qwen3_5_family() {
  static const VisionFamily kVision = vision_beside(qwen3_5_text_family());
  static const Family kFamily =
      with_pictures(qwen3_5_text_family(), "qwen3_5", "Qwen3_5ForConditionalGeneration", kVision);
  return kFamily;
}

const Family& qwen3_5_moe_family() {
  static const VisionFamily kVision = vision_beside(qwen3_5_moe_text_family());
  static const Family kFamily = with_pictures(qwen3_5_moe_text_family(), "qwen3_5_moe",
                                              "Qwen3_5MoeForConditionalGeneration", kVision);
  return kFamily;
}

}  // namespace headrace
