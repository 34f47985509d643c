#include "fuzz/fuzz_target.h"
#include "gguf/gguf_header.h"

// A whole file. What is accepted must lie within it, in order, and every value must be readable.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = headrace::as_text(data, size);
  return headrace::refuse_or_accept([&] {
    const headrace::GgufHeader header = headrace::parse_gguf(file, "fuzz");
    for (const auto& [key, value] : header.values) {
      value.text();
      value.boolean();
      value.integers();
      value.numbers();
      value.texts();
    }
    uint64_t end = 0;
    for (const headrace::GgufTensor& tensor : header.tensors) {
      if (tensor.begin < end || tensor.begin > size || tensor.bytes > size - tensor.begin) {
        throw headrace::InternalError("a misplaced tensor was accepted");
      }
      end = tensor.begin + tensor.bytes;
    }
  });
}
