#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/status.h"
#include "text/encode/pipeline.h"

namespace headrace {

/// Tokenizes a text with what was read of a file. Throws InternalError for tokens that the
/// tokenizer hasn't and for spans that don't lie in the text.
inline void encode_text(text::TokenizerParts parts) {
  constexpr std::string_view kText = "Hello  the aaab\u00e9\u2581 \uFB01\u4e2d\n ";
  const text::Pipeline pipeline(std::move(parts), text::SequenceEnds{});
  const auto scratch = pipeline.make_scratch();
  std::vector<int32_t> ids;
  std::vector<text::Range> ranges;
  pipeline.encode(kText, true, false, scratch.get(), &ids, &ranges);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= pipeline.parts().vocabulary->end() ||
        ranges[i].end > kText.size() || ranges[i].begin > ranges[i].end) {
      throw InternalError("an impossible token came out");
    }
  }
}

}  // namespace headrace
