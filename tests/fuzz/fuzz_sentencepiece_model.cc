#include <string>

#include "fuzz/fuzz_target.h"
#include "text/encode/pipeline.h"
#include "text/files/sentencepiece/sentencepiece_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return headrace::refuse_or_accept([&] {
    using namespace headrace::text;
    const Pipeline pipeline(make_parts(read_sentencepiece_model(headrace::as_text(data, size))),
                            SequenceEnds{});
    const auto scratch = pipeline.make_scratch();
    std::vector<int32_t> ids;
    std::vector<Range> ranges;
    const std::string text = "Hello  the aaab\u00e9\u2581 \uFB01\u4e2d\n ";
    pipeline.encode(text, true, false, scratch.get(), &ids, &ranges);
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] >= pipeline.parts().vocabulary->end() ||
          ranges[i].end > text.size() || ranges[i].begin > ranges[i].end) {
        throw headrace::InternalError("an impossible token came out");
      }
    }
  });
}
