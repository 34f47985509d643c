// A shared library with the C interface of llguidance. A grammar is the one text it allows; "loop"
// takes for ever to say what may follow, and "(" is an error. Compiled with several versions.

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "grammar/llguidance.h"

namespace headrace::internal {

struct LlgTokenizer {
  std::vector<std::string> tokens;
  uint32_t end;
};

struct LlgMatcher {
  const LlgTokenizer* tokenizer;
  std::string text;
  size_t done = 0;
  std::string error;
  std::atomic<bool> cancelled{false};
};

struct LlgCancellation {
  LlgMatcher* matcher;
};

}  // namespace headrace::internal

using headrace::internal::LlgCancellation;
using headrace::internal::LlgConstraintInit;
using headrace::internal::LlgMatcher;
using headrace::internal::LlgTokenizer;
using headrace::internal::LlgTokenizerInit;

#define EXPORT extern "C" [[gnu::visibility("default")]]

EXPORT const char* llg_get_version() { return FAKE_LLGUIDANCE_VERSION; }

EXPORT void llg_constraint_init_set_defaults(LlgConstraintInit* init,
                                             const LlgTokenizer* tokenizer) {
  *init = {};
  init->tokenizer = tokenizer;
  init->limits = {2000, 1'000'000, 200'000, 50'000, 250'000, 500'000, true, true};
#ifdef FAKE_LLGUIDANCE_LAYOUT
  std::memmove(reinterpret_cast<char*>(init) + 8, init, sizeof(LlgConstraintInit) - 8);
#endif
}

EXPORT LlgTokenizer* llg_new_tokenizer_v2(const LlgTokenizerInit* init, char* error, size_t size) {
  auto out = new LlgTokenizer{{}, init->tok_eos};
  const auto* bytes = reinterpret_cast<const char*>(init->token_bytes);
  for (uint32_t i = 0; i < init->vocab_size; ++i) {
    out->tokens.emplace_back(bytes, init->token_lens[i]);
    bytes += init->token_lens[i];
  }
  if (out->tokens[0] == "refused") {
    std::strncpy(error, "no such vocabulary", size);
    delete out;
    return nullptr;
  }
  return out;
}

EXPORT void llg_free_tokenizer(LlgTokenizer* tokenizer) { delete tokenizer; }

EXPORT LlgMatcher* llg_new_matcher(const LlgConstraintInit* init, const char* kind,
                                   const char* text) {
  auto out = new LlgMatcher{init->tokenizer, text};
  if (out->text == "(") out->error = std::string(kind) + ": it is open";
  return out;
}

EXPORT LlgMatcher* llg_clone_matcher(const LlgMatcher* matcher) {
  return new LlgMatcher{matcher->tokenizer, matcher->text, matcher->done, matcher->error};
}

EXPORT void llg_free_matcher(LlgMatcher* matcher) { delete matcher; }

EXPORT const char* llg_matcher_get_error(LlgMatcher* matcher) {
  return matcher->error.empty() ? nullptr : matcher->error.c_str();
}

EXPORT size_t llg_matcher_get_mask_byte_size(const LlgMatcher* matcher) {
  return (matcher->tokenizer->tokens.size() + 31) / 32 * 4;
}

EXPORT int32_t llg_matcher_compute_mask_into(LlgMatcher* matcher, uint32_t* mask, size_t bytes) {
  std::memset(mask, 0, bytes);
  while (matcher->text.substr(matcher->done) == "loop") {  // busy: patience is processor time
    if (!matcher->cancelled) continue;
    matcher->error = "operation cancelled\n<non-verbose/>";
    return -1;
  }
  const auto& tokens = matcher->tokenizer->tokens;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool fits = tokens[i].empty()
                          ? false
                          : matcher->text.compare(matcher->done, tokens[i].size(), tokens[i]) == 0;
    const bool ends = i == matcher->tokenizer->end && matcher->done == matcher->text.size();
    if (fits || ends) mask[i / 32] |= 1u << (i % 32);
  }
  return 0;
}

EXPORT int32_t llg_matcher_consume_token(LlgMatcher* matcher, uint32_t token) {
  const std::string& bytes = matcher->tokenizer->tokens.at(token);
  if (matcher->text.compare(matcher->done, bytes.size(), bytes) != 0) {
    matcher->error = "not allowed";
    return -1;
  }
  matcher->done += bytes.size();
  return 0;
}

EXPORT bool llg_matcher_is_accepting(LlgMatcher* matcher) {
  return matcher->done == matcher->text.size();
}

EXPORT LlgCancellation* llg_matcher_get_cancellation_handle(LlgMatcher* matcher) {
  return new LlgCancellation{matcher};
}

EXPORT void llg_cancel(const LlgCancellation* handle) { handle->matcher->cancelled = true; }

EXPORT void llg_free_cancellation_handle(LlgCancellation* handle) { delete handle; }
