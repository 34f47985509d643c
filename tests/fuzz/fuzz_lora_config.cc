#include <cmath>

#include "fuzz/fuzz_target.h"
#include "model/lora/lora_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return headrace::refuse_or_accept([&] {
    const auto config = headrace::parse_lora_config(headrace::as_text(data, size));
    for (const char* module : {"model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"}) {
      config.targets(module, 0);
      const int32_t rank = config.rank_of(module);
      if (rank < 1 || rank > headrace::kMaxLoraRank || !std::isfinite(config.scale_of(module))) {
        throw headrace::InternalError("an impossible adapter was accepted");
      }
    }
  });
}
