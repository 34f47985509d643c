#include <cstring>

#include "fuzz/fuzz_target.h"
#include "model/packed/packed_header.h"

// The first 8 bytes are the size of the data behind the header, the rest is the header.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint64_t data_bytes = 0;
  if (size < sizeof data_bytes) return 0;
  std::memcpy(&data_bytes, data, sizeof data_bytes);
  const auto header = headrace::as_text(data + sizeof data_bytes, size - sizeof data_bytes);
  return headrace::refuse_or_accept([&] {
    const auto packed = headrace::parse_packed_header(header, data_bytes, "fuzz");
    uint64_t covered = 0;
    for (const headrace::PackedTensor& tensor : packed.tensors) {
      if (covered % headrace::kPackedAlignment != 0) {
        throw headrace::InternalError("an unaligned tensor was accepted: " + tensor.name);
      }
      covered += tensor.bytes;
    }
    if (covered != data_bytes) throw headrace::InternalError("uncovered bytes were accepted");
  });
}
