// Bytes as a tokenizer.json: it is read or refused, and what was read tokenizes a text and gives
// spans that lie in it.

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/fuzz_target.h"
#include "text/encode/pipeline.h"
#include "text/files/tokenizer_json.h"

namespace {

using headrace::InternalError;
using headrace::text::Pipeline;
using headrace::text::Range;
using headrace::text::TokenizerParts;

constexpr std::string_view kText = "Hello, w\xC3\xB6rld  <s> 123\n\xE4\xBD\xA0\xE5\xA5\xBD\t";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return headrace::refuse_or_accept([&] {
    TokenizerParts parts = headrace::text::read_tokenizer_json(headrace::as_text(data, size));
    parts.added.build();
    const Pipeline pipeline(std::move(parts), {});
    const auto scratch = pipeline.make_scratch();
    std::vector<int32_t> ids;
    std::vector<int32_t> again;
    std::vector<Range> ranges;
    pipeline.encode(kText, true, false, scratch.get(), &ids, &ranges);
    pipeline.encode(kText, true, false, scratch.get(), &again, nullptr);
    if (ids != again || ids.size() != ranges.size()) throw InternalError("two results for a text");
    for (const Range& range : ranges) {
      if (range.begin > range.end || range.end > kText.size()) throw InternalError("a wrong span");
    }
  });
}
