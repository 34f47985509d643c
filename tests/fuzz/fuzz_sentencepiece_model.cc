#include "fuzz/encode_text.h"
#include "fuzz/fuzz_target.h"
#include "text/files/sentencepiece/sentencepiece_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return headrace::refuse_or_accept([&] {
    using namespace headrace::text;
    headrace::encode_text(make_parts(read_sentencepiece_model(headrace::as_text(data, size))));
  });
}
