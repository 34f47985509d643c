#include "fuzz/fuzz_target.h"
#include "text/files/tiktoken/tiktoken.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return headrace::refuse_or_accept([&] {
    using namespace headrace::text;
    const std::string_view file = headrace::as_text(data, size);
    const TokenizerTables tables =
        file.starts_with('{') ? read_tekken(file) : read_tiktoken(file, "gpt-2");
    const TokenizerParts parts = make_parts(tables);
    const auto scratch = parts.model->make_scratch();
    Fuel fuel(1 << 20, "a fuzzed text");
    std::vector<Token> tokens;
    parts.model->encode("Hello abab the\xFF", true, scratch.get(), &fuel, &tokens);
    for (const Token& token : tokens) {
      if (token.id < 0 || token.id >= parts.vocabulary->end()) {
        throw headrace::InternalError("an impossible token came out");
      }
    }
  });
}
