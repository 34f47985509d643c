#include <algorithm>
#include <string>

#include "fuzz/fuzz_target.h"
#include "headrace/chat_template.h"

// A template, and behind a NUL the variables; without one, a conversation of ours.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return headrace::refuse_or_accept([&] {
    const std::string_view all = headrace::as_text(data, size);
    const size_t end = std::min(all.find('\0'), all.size());
    headrace::TemplateLimits limits;
    limits.max_steps = 200'000;
    limits.max_memory_bytes = 4 << 20;
    limits.max_output_bytes = 1 << 20;
    const headrace::ChatTemplate chat(all.substr(0, end), limits);
    const std::string text =
        chat.render(end < all.size() ? all.substr(end + 1)
                                     : R"({"messages": [{"role": "user", "content": "hi <b> 你好"},
                             {"role": "assistant", "content": null, "n": [1, 2.5, true]}],
                             "tools": [{"name": "f"}], "x": "a b"})");
    if (text.size() > limits.max_output_bytes) {
      throw headrace::InternalError("a template built more than it may");
    }
  });
}
