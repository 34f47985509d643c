#include "fuzz/encode_text.h"
#include "fuzz/fuzz_target.h"
#include "text/files/gguf/gguf_specials.h"
#include "text/files/gguf/gguf_templates.h"
#include "text/files/gguf/gguf_tokenizer.h"

// A whole file, whose metadata are a tokenizer's.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return headrace::refuse_or_accept([&] {
    using namespace headrace::text;
    const auto header = headrace::parse_gguf(headrace::as_text(data, size), "fuzz");
    gguf_chat_templates(header);
    gguf_tokenizer_config(header);
    gguf_stop_ids(header);
    headrace::encode_text(make_parts(read_gguf_tokenizer(header)));
  });
}
