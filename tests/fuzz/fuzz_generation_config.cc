#include "fuzz/fuzz_target.h"
#include "model/config/model_config.h"
#include "model/load/load_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return headrace::refuse_or_accept([&] {
    const auto config = headrace::parse_model_config(R"({"model_type":"llama","vocab_size":64})",
                                                     std::string(headrace::as_text(data, size)));
    for (const int32_t id : config.eos_token_ids) {
      if (id < 0 || id >= 64) throw headrace::InternalError("an impossible id was accepted");
    }
  });
}
