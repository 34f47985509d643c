#include <algorithm>
#include <vector>

#include "fuzz/fuzz_target.h"
#include "text/regex/regex.h"
#include "text/unicode/utf8.h"

// The pattern, NUL, the text.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace::text;
  const std::string_view all = headrace::as_text(data, size);
  if (invalid_utf8_at(all) != kValid) {
    return 0;  // what holds patterns and texts is checked before
  }
  return headrace::refuse_or_accept([&] {
    const size_t end = std::min(all.find('\0'), all.size());
    const std::string_view text = all.substr(std::min(end + 1, all.size()));
    Fuel fuel(1 << 14, "a fuzzed pattern");
    std::vector<Range> matches;
    compile_regex(all.substr(0, end))->find_all(text, 0, &matches, &fuel);
    uint32_t done = 0;
    for (const Range& match : matches) {
      if (match.begin < done || match.end < match.begin || match.end > text.size() ||
          invalid_utf8_at(text.substr(match.begin, match.end - match.begin)) != kValid) {
        throw headrace::InternalError("an impossible match came out");
      }
      done = match.end;
    }
  });
}
