#include <optional>
#include <string>
#include <utility>

#include "c_api/c_struct.h"
#include "c_api/text/c_text_handles.h"

using namespace headrace;
using namespace headrace::c_api;

namespace {

headrace_detokenizer_options default_detokenizer_options() {
  headrace_detokenizer_options out{};
  out.skip_special_tokens = 1;
  return out;
}

OutputText to_output_text(const Tokenizer& tokenizer, const headrace_detokenizer_options& in) {
  const DetokenizerOptions how{.skip_special_tokens = in.skip_special_tokens != 0,
                               .shown = to_texts(in.shown, in.num_shown, "shown"),
                               .after = to_ids(in.after, in.num_after, "after")};
  std::optional<StopStrings> stops;
  if (in.num_stop > 0) stops.emplace(to_texts(in.stop, in.num_stop, "stop"));
  return OutputText(Detokenizer(tokenizer, how), std::move(stops),
                    {.min_tokens = in.min_tokens, .keeps_string = in.include_stop_string != 0});
}

template <class Make>
headrace_code give(headrace_detokenizer* detokenizer, const char** text, size_t* length,
                   const Make& make) {
  return guarded([&] {
    const char*& data = deref(text, "text");
    size_t& bytes = deref(length, "length");
    headrace_detokenizer& with = deref(detokenizer, "detokenizer");
    with.last = make(with.text);
    data = with.last.c_str();
    bytes = with.last.size();
  });
}

}  // namespace

void headrace_detokenizer_options_init(headrace_detokenizer_options* options, size_t size) {
  init_struct(options, size, default_detokenizer_options());
}

headrace_code headrace_detokenizer_create(headrace_tokenizer* tokenizer,
                                          const headrace_detokenizer_options* options,
                                          headrace_detokenizer** detokenizer) {
  return guarded([&] {
    headrace_detokenizer*& out = deref(detokenizer, "detokenizer");
    const Tokenizer& with = *deref(tokenizer, "tokenizer").tokenizer;
    const headrace_detokenizer_options in = read_options(options, default_detokenizer_options());
    out = new headrace_detokenizer{to_output_text(with, in), ""};
  });
}

void headrace_detokenizer_release(headrace_detokenizer* detokenizer) { delete detokenizer; }

headrace_code headrace_detokenizer_push(headrace_detokenizer* detokenizer, const int32_t* ids,
                                        size_t num_ids, const char** text, size_t* length) {
  return give(detokenizer, text, length, [&](OutputText& out) {
    std::string made;
    for (const int32_t id : array(ids, num_ids, "ids")) made += out.push(id);
    return made;
  });
}

headrace_code headrace_detokenizer_finish(headrace_detokenizer* detokenizer, const char** text,
                                          size_t* length) {
  return give(detokenizer, text, length, [](OutputText& out) { return out.finish(); });
}

headrace_code headrace_detokenizer_get_state(headrace_detokenizer* detokenizer,
                                             headrace_detokenizer_state* state) {
  return guarded([&] {
    const size_t size = deref(state, "state").struct_size;
    check_struct_size(size, "state");
    const OutputText& text = deref(detokenizer, "detokenizer").text;
    headrace_detokenizer_state out{};
    out.released = text.released();
    if (const std::optional<StopMatch>& match = text.match()) {
      out.stop_string = match->string.c_str();
      out.start = match->start;
      out.end = match->end;
      out.start_char = match->start_char;
      out.end_char = match->end_char;
    }
    write_struct(state, size, out);
  });
}
