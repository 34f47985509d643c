// SmolVLM2 and Idefics3: a SigLIP tower that takes square tiles, pixel shuffle and one linear as
// connector, and a Llama whose rows of pictures have positions like text.

#include <string>
#include <vector>

#include "base/check.h"
#include "model/families/family.h"
#include "model/families/vision/vision_keys.h"
#include "model/sources/vision_sources.h"

namespace headrace {

namespace {

constexpr int64_t kMaxImageSize = 1 << 16;

void read_smolvlm_text(ConfigReader& reader, ModelConfig& config) {
  llama_family().read(reader, config);
  reader.require("qk_layer_norms", false);
  reader.require("use_resampler", false);
}

VisionConfig read_smolvlm_tower(ConfigReader& reader, ConfigReader& model,
                                const ModelConfig& /*config*/) {
  VisionConfig out;
  read_tower_shape(reader,
                   {.default_width = 1152,
                    .depth = "num_hidden_layers",
                    .default_depth = 12,
                    .heads = "num_attention_heads",
                    .default_patch = 32,
                    .rope = false},
                   out);
  out.mlp_width = read_tower_width(reader, "intermediate_size", 3072);
  out.activation = read_activation(reader, "gelu_pytorch_tanh");
  out.norm_eps = static_cast<float>(reader.number("layer_norm_eps", 1e-6, 1e-12, 1.0));
  out.patches_by_row = true;
  out.merge_size = static_cast<int32_t>(model.integer("scale_factor", 2, 1, kMaxMergeSize));
  out.position_side = read_side(reader, "image_size", 224, kMaxImageSize) / out.patch_size;
  if (out.position_side < 1 || out.position_side > kMaxPositionSide ||
      out.position_side % out.merge_size != 0) {
    reader.fail_value(
        "image_size",
        str_cat("must hold 1 to ", kMaxPositionSide, " patches of patch_size (", out.patch_size,
                "), a multiple of scale_factor (", out.merge_size, ")"));
  }
  // How images are cut into tiles.
  reader.refuse_unknown_keys(
      harmless_tower_keys({"max_image_size", "size", "tie_word_embeddings", "use_base_siglip"}));
  return out;
}

VisionBlockSources list_smolvlm_block(const VisionConfig& config, const VisionNaming& naming) {
  const int64_t width = config.width, wide = config.mlp_width;
  VisionBlockSources out;
  out.norm_1 = naming.norm("norm_1", "layer_norm1", width, true);
  out.norm_2 = naming.norm("norm_2", "layer_norm2", width, true);
  out.q = naming.linear("q", {{"self_attn.q_proj", width}}, width, true);
  out.kv =
      naming.linear("kv", {{"self_attn.k_proj", width}, {"self_attn.v_proj", width}}, width, true);
  out.proj = naming.linear("proj", {{"self_attn.out_proj", width}}, width, true);
  out.up = naming.linear("up", {{"mlp.fc1", wide}}, width, true);
  out.down = naming.linear("down", {{"mlp.fc2", width}}, wide, true);
  return out;
}

VisionSources list_smolvlm_tower(const ModelConfig& config, const TensorNaming& names) {
  const VisionConfig& vision = *config.vision;
  const VisionNaming naming = VisionNaming(names.vision).within("vision_model.", "");
  const int64_t side = vision.position_side, width = vision.width;
  VisionSources out;
  out.patches = naming.patches(vision, "embeddings.patch_embedding", false, true);
  out.positions =
      naming.table("positions", "embeddings.position_embedding.weight", side * side, width);
  for (int32_t i = 0; i < vision.depth; ++i) {
    out.blocks.push_back(list_smolvlm_block(
        vision, naming.within(str_cat("encoder.layers.", i, "."), str_cat("blocks.", i, "."))));
  }
  out.last_norm = naming.norm("last_norm", "post_layernorm", width, true);
  const int64_t joined = width * vision.merge_size * vision.merge_size;
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
