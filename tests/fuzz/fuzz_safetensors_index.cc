#include <filesystem>

#include "fuzz/fuzz_target.h"
#include "model/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return headrace::refuse_or_accept([&] {
    const auto index = headrace::parse_safetensors_index(headrace::as_text(data, size), "fuzz");
    for (const auto& [tensor, file] : index) {
      const std::filesystem::path joined = std::filesystem::path("/model") / file;
      if (joined.lexically_normal().parent_path() != "/model") {
        throw headrace::InternalError("a file outside the folder was accepted: " + file);
      }
    }
  });
}
