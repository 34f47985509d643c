#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "c_api/c_array.h"
#include "headrace/c_text.h"
#include "headrace/chat.h"
#include "headrace/grammar.h"
#include "headrace/text.h"
#include "headrace/text_output.h"

// What the opaque handles of headrace/c_text.h are.

struct headrace_tokenizer {
  std::shared_ptr<const headrace::Tokenizer> tokenizer;
};

struct headrace_detokenizer {
  headrace::OutputText text;
  std::string last;  ///< that a caller was given
};

struct headrace_chat_templates {
  std::shared_ptr<const headrace::ChatTemplates> templates;
};

struct headrace_text_stream {
  headrace::TextStream stream;
};

struct headrace_grammar_compiler {
  headrace::GrammarCompiler compiler;
};

namespace headrace::c_api {

/// What the public struct points into.
struct OwnedText : headrace_text {
  explicit OwnedText(std::string from) : headrace_text{}, own(std::move(from)) {
    struct_size = sizeof(headrace_text);
    data = own.c_str();
    length = own.size();
  }

  const std::string own;
};

/// nullptr for none.
inline headrace_text* to_text(std::optional<std::string> from) {
  return from ? new OwnedText(*std::move(from)) : nullptr;
}

inline std::string_view to_view(const char* data, size_t length, const char* what) {
  if (length == 0) return {};
  if (length == HEADRACE_TO_NUL) return or_empty(data);
  return {&deref(data, what), length};
}

ChatOptions to_chat_options(const headrace_chat_options* options);

}  // namespace headrace::c_api
