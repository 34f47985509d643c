#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "fuzz/fuzz_target.h"
#include "model/config/model_config.h"
#include "model/load/load_config.h"

namespace {

/// Numbers that a tower can be built of.
bool is_sane(const headrace::VisionConfig& vision, int32_t decoder_layers) {
  const auto are_blocks = [&](const std::vector<int32_t>& blocks) {
    return std::ranges::all_of(blocks,
                               [&](int32_t block) { return block >= 0 && block < vision.depth; });
  };
  const int32_t positive[] = {vision.depth,      vision.width,      vision.num_heads,
                              vision.mlp_width,  vision.patch_size, vision.temporal_patch_size,
                              vision.merge_size, vision.head_dim};
  return std::ranges::all_of(positive, [](int32_t number) { return number > 0; }) &&
         vision.head_dim % 8 == 0 && vision.head_dim * vision.num_heads == vision.width &&
         vision.window >= 0 && vision.position_side >= 0 && are_blocks(vision.full_blocks) &&
         are_blocks(vision.deepstack_blocks) &&
         std::cmp_less(vision.deepstack_blocks.size(), decoder_layers);
}

bool is_sane(const headrace::RopeSpec& rope, int32_t head_dim) {
  const auto pairs = static_cast<size_t>(rope.rotary_dim / 2);
  return rope.rotary_dim > 0 && rope.rotary_dim % 2 == 0 && rope.rotary_dim <= head_dim &&
         rope.inv_freq.size() == pairs && (rope.axes.empty() || rope.axes.size() == pairs) &&
         std::ranges::all_of(rope.axes, [](uint8_t axis) { return axis < 3; }) &&
         std::ranges::all_of(rope.inv_freq, [](float f) { return std::isfinite(f); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return headrace::refuse_or_accept([&] {
    const auto config =
        headrace::parse_model_config(std::string(headrace::as_text(data, size)), "");
    bool sane = config.num_heads > 0 && config.num_heads % config.num_kv_heads == 0 &&
                config.head_dim % 16 == 0 && config.ropes.size() <= headrace::kMaxRopes &&
                config.layer_rope.size() == config.layer_window.size() &&
                config.layer_window.size() == static_cast<size_t>(config.num_layers);
    const headrace::StoredQuantization& stored = config.stored_quantization;
    if (stored.method != headrace::StoredMethod::kNone) {
      sane = sane && (stored.bits == 4 || stored.bits == 8) && stored.group_size >= 0 &&
             stored.group_size % 32 == 0;
    }
    sane = sane && config.moe.first_vision_token >= 0 &&
           config.moe.first_vision_token < config.vocab_size;
    for (const headrace::RopeSpec& rope : config.ropes) {
      sane = sane && is_sane(rope, config.head_dim);
    }
    for (const int32_t rope : config.layer_rope) {
      sane = sane && rope >= -1 && std::cmp_less(rope, config.ropes.size());
    }
    for (const int32_t id : config.eos_token_ids) {
      sane = sane && id >= 0 && id < config.vocab_size;
    }
    if (config.vision) sane = sane && is_sane(*config.vision, config.num_layers);
    if (!sane) throw headrace::InternalError("an impossible config was accepted");
  });
}
