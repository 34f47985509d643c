#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "c_api/c_handles.h"
#include "c_api/c_struct.h"
#include "c_api/text/c_text_handles.h"

using namespace headrace;
using namespace headrace::c_api;

namespace {

const Tokenizer& tokenizer_of(headrace_tokenizer* tokenizer) {
  return *deref(tokenizer, "tokenizer").tokenizer;
}

/// What the public struct points into.
struct OwnedEncoding : headrace_encoding {
  OwnedEncoding() : headrace_encoding{} { struct_size = sizeof(headrace_encoding); }

  std::vector<int32_t> own_ids;
  std::vector<headrace_text_span> own_spans;
};

}  // namespace

void headrace_text_release(headrace_text* text) { delete static_cast<OwnedText*>(text); }

headrace_code headrace_tokenizer_load(const char* folder, headrace_tokenizer** tokenizer) {
  return guarded([&] {
    headrace_tokenizer*& out = deref(tokenizer, "tokenizer");
    out = new headrace_tokenizer{Tokenizer::load(or_empty(folder))};
  });
}

headrace_code headrace_engine_tokenizer(headrace_engine* engine, const char* model,
                                        headrace_tokenizer** tokenizer) {
  return guarded([&] {
    headrace_tokenizer*& out = deref(tokenizer, "tokenizer");
    out = new headrace_tokenizer{deref(engine, "engine").engine.tokenizer(or_empty(model))};
  });
}

void headrace_tokenizer_release(headrace_tokenizer* tokenizer) { delete tokenizer; }

void headrace_encode_options_init(headrace_encode_options* options, size_t size) {
  init_struct(options, size, headrace_encode_options{});
}

headrace_code headrace_tokenizer_encode(headrace_tokenizer* tokenizer, const char* text,
                                        size_t length, const headrace_encode_options* options,
                                        headrace_encoding** encoding) {
  return guarded([&] {
    headrace_encoding*& out = deref(encoding, "encoding");
    const Tokenizer& with = tokenizer_of(tokenizer);
    const headrace_encode_options in = read_options(options, headrace_encode_options{});
    check_reserved(in.reserved);
    const EncodeOptions how{.add_special = in.add_special != 0,
                            .special_as_text = in.special_as_text != 0,
                            .max_tokens = in.max_tokens};
    auto made = std::make_unique<OwnedEncoding>();
    std::vector<TextSpan> spans;
    with.encode(to_view(text, length, "text"), how, &made->own_ids,
                in.with_spans != 0 ? &spans : nullptr);
    for (const TextSpan& span : spans) made->own_spans.push_back({span.begin, span.end});
    made->ids = made->own_ids.data();
    made->count = made->own_ids.size();
    made->spans = in.with_spans != 0 ? made->own_spans.data() : nullptr;
    out = made.release();
  });
}

void headrace_encoding_release(headrace_encoding* encoding) {
  delete static_cast<OwnedEncoding*>(encoding);
}

headrace_code headrace_tokenizer_decode(headrace_tokenizer* tokenizer, const int32_t* ids,
                                        size_t num_ids, int32_t skip_special,
                                        headrace_text** text) {
  return guarded([&] {
    headrace_text*& out = deref(text, "text");
    const Tokenizer& with = tokenizer_of(tokenizer);
    out = new OwnedText(with.decode(array(ids, num_ids, "ids"), skip_special != 0));
  });
}

headrace_code headrace_tokenizer_find(headrace_tokenizer* tokenizer, const char* spelling,
                                      int32_t* id) {
  return guarded(
      [&] { deref(id, "id") = tokenizer_of(tokenizer).id(or_empty(spelling)).value_or(-1); });
}

headrace_code headrace_tokenizer_special(headrace_tokenizer* tokenizer, const char* role,
                                         int32_t* id) {
  return guarded([&] {
    int32_t& out = deref(id, "id");
    const Tokenizer& with = tokenizer_of(tokenizer);
    const std::string wanted = or_empty(role);
    if (wanted.empty()) throw_error(ErrorCode::kInvalidArgument, "role is empty.");
    out = -1;
    for (const SpecialToken& token : with.special()) {
      if (token.role == wanted) out = token.id;
    }
  });
}

headrace_code headrace_tokenizer_spelling(headrace_tokenizer* tokenizer, int32_t id,
                                          headrace_text** spelling) {
  return guarded([&] {
    headrace_text*& out = deref(spelling, "spelling");
    out = to_text(tokenizer_of(tokenizer).spelling(id));
  });
}

headrace_code headrace_tokenizer_token_bytes(headrace_tokenizer* tokenizer, int32_t id,
                                             headrace_text** bytes) {
  return guarded([&] {
    headrace_text*& out = deref(bytes, "bytes");
    out = new OwnedText(tokenizer_of(tokenizer).token_bytes(id));
  });
}

headrace_code headrace_tokenizer_size(headrace_tokenizer* tokenizer, int32_t* size, int32_t* end) {
  return guarded([&] {
    const Tokenizer& with = tokenizer_of(tokenizer);
    if (size != nullptr) *size = with.size();
    if (end != nullptr) *end = with.end();
  });
}
