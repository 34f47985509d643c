#include <memory>
#include <optional>
#include <utility>

#include "c_api/c_handles.h"
#include "c_api/c_options.h"
#include "c_api/c_output.h"
#include "c_api/c_struct.h"
#include "c_api/text/c_text_handles.h"

using namespace headrace;
using namespace headrace::c_api;

namespace {

headrace_text_options default_text_options() {
  headrace_text_options out{};
  out.skip_special_tokens = 1;
  return out;
}

/// `constraint` is the one of the result, or null.
TextOptions to_text_options(const headrace_text_options* options,
                            std::shared_ptr<ForeignConstraint>& constraint) {
  const headrace_text_options in = read_options(options, default_text_options());
  check_reserved(in.reserved);
  TextOptions out;
  if (in.request != nullptr) out.request = to_request_options(in.request, constraint);
  out.stop = to_texts(in.stop, in.num_stop, "stop");
  out.include_stop_string = in.include_stop_string != 0;
  out.skip_special_tokens = in.skip_special_tokens != 0;
  out.add_special_tokens = in.add_special_tokens != 0;
  return out;
}

template <class Submit>
headrace_code submit(headrace_engine* engine, const headrace_text_options* options,
                     headrace_text_stream** stream, const Submit& call) {
  return guarded([&] {
    headrace_text_stream*& out = deref(stream, "stream");
    std::shared_ptr<ForeignConstraint> constraint;
    TextOptions how = to_text_options(options, constraint);
    TextStream made = call(deref(engine, "engine").engine, std::move(how));
    if (constraint) constraint->accept();
    out = new headrace_text_stream{std::move(made)};
  });
}

/// What the public struct points into.
struct OwnedTextOutput : headrace_text_output {
  explicit OwnedTextOutput(TextOutput from)
      : headrace_text_output{},
        own_text(std::move(from.text)),
        own_stop(std::move(from.stop_string)),
        own_output(std::move(static_cast<Output&>(from))) {
    struct_size = sizeof(headrace_text_output);
    text = own_text.c_str();
    length = own_text.size();
    stop_string = own_stop.empty() ? nullptr : own_stop.c_str();
    output = &own_output;
  }

  const std::string own_text;
  const std::string own_stop;
  const OwnedOutput own_output;
};

}  // namespace

void headrace_text_options_init(headrace_text_options* options, size_t size) {
  init_struct(options, size, default_text_options());
}

headrace_code headrace_engine_submit_chat(headrace_engine* engine, const char* model,
                                          const char* messages_json,
                                          const headrace_text_options* options,
                                          const headrace_chat_options* chat,
                                          headrace_text_stream** stream) {
  return submit(engine, options, stream, [&](Engine& with, TextOptions how) {
    return with.submit_chat(or_empty(model), or_empty(messages_json), std::move(how),
                            to_chat_options(chat));
  });
}

headrace_code headrace_engine_submit_text(headrace_engine* engine, const char* model,
                                          const char* prompt, size_t length,
                                          const headrace_text_options* options,
                                          headrace_text_stream** stream) {
  return submit(engine, options, stream, [&](Engine& with, TextOptions how) {
    return with.submit_text(or_empty(model), to_view(prompt, length, "prompt"), std::move(how));
  });
}

void headrace_text_stream_release(headrace_text_stream* stream) { delete stream; }

headrace_code headrace_text_stream_next(headrace_text_stream* stream, int64_t timeout,
                                        headrace_text_output** output) {
  return guarded([&] {
    headrace_text_output*& out = deref(output, "output");
    TextStream& from = deref(stream, "stream").stream;
    const auto limit = to_timeout(timeout);
    std::optional<TextOutput> came = limit ? from.next(*limit) : from.next();
    out = came ? new OwnedTextOutput(*std::move(came)) : nullptr;
  });
}

void headrace_text_output_release(headrace_text_output* output) {
  delete static_cast<OwnedTextOutput*>(output);
}

headrace_code headrace_text_stream_cancel(headrace_text_stream* stream) {
  return guarded([&] { deref(stream, "stream").stream.cancel(); });
}

headrace_code headrace_text_stream_request(headrace_text_stream* stream,
                                           headrace_request** request) {
  return guarded([&] {
    headrace_request*& out = deref(request, "request");
    const Request& made = deref(stream, "stream").stream.request();
    out = new headrace_request{made, made.results()};
  });
}
