#include "model/families/vision/vision_block.h"

namespace headrace {

VisionBlockSources list_fused_attention(const VisionConfig& config, const VisionNaming& naming) {
  const int64_t width = config.width;
  const bool bias = !config.rms_norm;
  VisionBlockSources out;
  out.norm_1 = naming.norm("norm_1", "norm1", width, bias);
  out.norm_2 = naming.norm("norm_2", "norm2", width, bias);
  out.q = naming.rows("q", "attn.qkv", {0, width}, 3 * width, width);
  out.kv = naming.rows("kv", "attn.qkv", {width, 2 * width}, 3 * width, width);
  out.proj = naming.linear("proj", {{"attn.proj", width}}, width, true);
  return out;
}

}  // namespace headrace
