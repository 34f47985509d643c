#include "model/families/wrapper.h"

#include <algorithm>

namespace headrace {

namespace {

Wrapper qwen3_5(std::string_view model_type, std::string_view architecture,
                std::string_view text_type) {
  return {.model_type = model_type,
          .architectures = {architecture},
          .text_types = {text_type},
          .prefixes = {"model.language_model."},
          .heads = {"lm_head.weight"},
          .ignored = {"model.visual."},
          .harmless_keys = {"vision_config", "image_token_id", "video_token_id",
                            "vision_start_token_id", "vision_end_token_id"}};
}

}  // namespace

std::span<const Wrapper> all_wrappers() {
  static const std::vector<Wrapper> kWrappers{
      {.model_type = "gemma3",
       .architectures = {"Gemma3ForConditionalGeneration"},
       .text_types = {"gemma3_text"},
       .prefixes = {"language_model.model.", "model.language_model."},
       .heads = {"language_model.lm_head.weight", "lm_head.weight"},
       .ignored = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                   "model.multi_modal_projector."},
       .harmless_keys = {"vision_config", "boi_token_index", "eoi_token_index", "image_token_index",
                         "image_token_id", "boi_token_id", "eoi_token_id", "mm_tokens_per_image"}},
      {.model_type = "gemma4",
       .architectures = {"Gemma4ForConditionalGeneration"},
       .text_types = {"gemma4_text"},
       .prefixes = {"model.language_model."},
       .heads = {"lm_head.weight"},
       .ignored = {"model.vision_tower.", "model.embed_vision.", "model.audio_tower.",
                   "model.embed_audio."},
       .harmless_keys = {"vision_config", "audio_config", "boi_token_id", "eoi_token_id",
                         "image_token_id", "video_token_id", "boa_token_id", "eoa_token_id",
                         "eoa_token_index", "audio_token_id", "vision_soft_tokens_per_image"}},
      {.model_type = "mistral3",
       .architectures = {"Mistral3ForConditionalGeneration"},
       .text_types = {"mistral", "ministral3"},
       .prefixes = {"language_model.model.", "model.language_model."},
       .heads = {"language_model.lm_head.weight", "lm_head.weight"},
       .ignored = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                   "model.multi_modal_projector."},
       .harmless_keys = {"vision_config", "image_token_index", "image_token_id",
                         "multimodal_projector_bias", "projector_hidden_act", "spatial_merge_size",
                         "vision_feature_layer"}},
      qwen3_5("qwen3_5", "Qwen3_5ForConditionalGeneration", "qwen3_5_text"),
      qwen3_5("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe_text"),
  };
  return kWrappers;
}

const Wrapper* find_wrapper(std::string_view model_type) {
  const auto wrappers = all_wrappers();
  const auto found = std::ranges::find(wrappers, model_type, &Wrapper::model_type);
  return found == wrappers.end() ? nullptr : &*found;
}

}  // namespace headrace
