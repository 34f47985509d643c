#include <cmath>

#include "fuzz/fuzz_target.h"
#include "model/config/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return headrace::refuse_or_accept([&] {
    const auto config =
        headrace::parse_model_config(std::string(headrace::as_text(data, size)), "");
    bool sane = config.num_heads > 0 && config.num_heads % config.num_kv_heads == 0 &&
                config.head_dim % 16 == 0 && config.rope.rotary_dim == config.head_dim &&
                config.layer_window.size() == static_cast<size_t>(config.num_layers);
    const headrace::StoredQuantization& stored = config.stored_quantization;
    if (stored.method != headrace::StoredMethod::kNone) {
      sane = sane && (stored.bits == 4 || stored.bits == 8) && stored.group_size >= 0 &&
             stored.group_size % 32 == 0;
    }
    const auto& axes = config.rope.axes;
    sane = sane && (axes.empty() || 2 * axes.size() == static_cast<size_t>(config.head_dim)) &&
           config.moe.first_vision_token >= 0 && config.moe.first_vision_token < config.vocab_size;
    for (const uint8_t axis : axes) sane = sane && axis < 3;
    for (const float frequency : config.rope.inv_freq) sane = sane && std::isfinite(frequency);
    for (const int32_t id : config.eos_token_ids) {
      sane = sane && id >= 0 && id < config.vocab_size;
    }
    if (!sane) throw headrace::InternalError("an impossible config was accepted");
  });
}
