#include <cstring>

#include "fuzz/fuzz_target.h"
#include "model/checkpoint/safetensors.h"

// The first 8 bytes are the size of the data behind the header, the rest is the header.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint64_t data_bytes = 0;
  if (size < sizeof data_bytes) return 0;
  std::memcpy(&data_bytes, data, sizeof data_bytes);
  const auto header = headrace::as_text(data + sizeof data_bytes, size - sizeof data_bytes);
  return headrace::refuse_or_accept([&] {
    uint64_t covered = 0;
    for (const auto& entry : headrace::parse_safetensors_header(header, data_bytes, "fuzz")) {
      if (entry.begin != covered || entry.end < entry.begin || entry.end > data_bytes) {
        throw headrace::InternalError("an entry outside its file was accepted: " + entry.name);
      }
      covered = entry.end;
    }
    if (covered != data_bytes) throw headrace::InternalError("uncovered bytes were accepted");
  });
}
