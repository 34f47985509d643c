#include "model/families/vision/siglip_tower.h"

#include "base/check.h"

namespace headrace {

namespace {

constexpr int64_t kMaxImageSize = 1 << 16;
constexpr int32_t kImageSize = 224;

VisionBlockSources list_block(const VisionConfig& config, const VisionNaming& naming) {
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

}  // namespace

void read_siglip_tower(ConfigReader& reader, TowerKeys keys, VisionConfig& out) {
  keys.depth = "num_hidden_layers";
  keys.heads = "num_attention_heads";
  keys.rope = false;
  read_tower_shape(reader, keys, out);
  out.mlp_width = read_tower_width(reader, "intermediate_size", 3072);
  out.activation = read_activation(reader, "gelu_pytorch_tanh");
  out.norm_eps = static_cast<float>(reader.number("layer_norm_eps", 1e-6, 1e-12, 1.0));
  out.position_side = read_side(reader, "image_size", kImageSize, kMaxImageSize) / out.patch_size;
  if (out.position_side < 1 || out.position_side > kMaxPositionSide) {
    reader.fail_value("image_size", str_cat("must hold 1 to ", kMaxPositionSide,
                                            " patches of patch_size (", out.patch_size, ")"));
  }
}

VisionSources list_siglip_tower(const VisionConfig& config, const VisionNaming& naming) {
  const int64_t side = config.position_side, width = config.width;
  VisionSources out;
  out.patches = naming.patches(config, "embeddings.patch_embedding", false, true);
  out.positions =
      naming.table("positions", "embeddings.position_embedding.weight", side * side, width);
  for (int32_t i = 0; i < config.depth; ++i) {
    out.blocks.push_back(list_block(
        config, naming.within(str_cat("encoder.layers.", i, "."), str_cat("blocks.", i, "."))));
  }
  out.last_norm = naming.norm("last_norm", "post_layernorm", width, true);
  return out;
}

}  // namespace headrace
