#include "model/families/wrapper.h"

#include <algorithm>

namespace headrace {

std::span<const Wrapper> all_wrappers() {
  static const std::vector<Wrapper> kWrappers{
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
  };
  return kWrappers;
}

const Wrapper* find_wrapper(std::string_view model_type) {
  const auto wrappers = all_wrappers();
  const auto found = std::ranges::find(wrappers, model_type, &Wrapper::model_type);
  return found == wrappers.end() ? nullptr : &*found;
}

}  // namespace headrace
