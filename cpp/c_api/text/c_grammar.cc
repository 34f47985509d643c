#include <memory>
#include <string>

#include "c_api/c_handles.h"
#include "c_api/c_struct.h"
#include "c_api/text/c_text_handles.h"

using namespace headrace;
using namespace headrace::c_api;

namespace {

headrace_grammar_options default_grammar_options() {
  const GrammarLimits limits;
  headrace_grammar_options out{};
  out.max_schema_bytes = limits.max_schema_bytes;
  out.max_grammar_bytes = limits.max_grammar_bytes;
  out.max_grammar_size = limits.max_grammar_size;
  out.compile_fuel = limits.compile_fuel;
  out.token_fuel = limits.token_fuel;
  out.max_token_items = limits.max_token_items;
  out.max_lexer_states = limits.max_lexer_states;
  return out;
}

GrammarKind to_kind(int32_t kind) { return to_enum(kind, GrammarKind::kLlguidance, "kind"); }

static_assert(HEADRACE_LLGUIDANCE == static_cast<int>(GrammarKind::kLlguidance));

}  // namespace

void headrace_grammar_options_init(headrace_grammar_options* options, size_t size) {
  init_struct(options, size, default_grammar_options());
}

headrace_code headrace_grammar_compiler_create(headrace_tokenizer* tokenizer,
                                               const headrace_grammar_options* options,
                                               headrace_grammar_compiler** compiler) {
  return guarded([&] {
    headrace_grammar_compiler*& out = deref(compiler, "compiler");
    const Tokenizer& with = *deref(tokenizer, "tokenizer").tokenizer;
    const headrace_grammar_options in = read_options(options, default_grammar_options());
    const GrammarLimits limits{.max_schema_bytes = in.max_schema_bytes,
                               .max_grammar_bytes = in.max_grammar_bytes,
                               .max_grammar_size = in.max_grammar_size,
                               .compile_fuel = in.compile_fuel,
                               .token_fuel = in.token_fuel,
                               .max_token_items = in.max_token_items,
                               .max_lexer_states = in.max_lexer_states};
    const std::string library = or_empty(in.library);
    const VocabularyBytes vocabulary = with.token_bytes();
    if (library.empty()) {
      out = new headrace_grammar_compiler{GrammarCompiler(vocabulary, limits)};
    } else {
      out = new headrace_grammar_compiler{GrammarCompiler(library, vocabulary, limits)};
    }
  });
}

void headrace_grammar_compiler_release(headrace_grammar_compiler* compiler) { delete compiler; }

headrace_code headrace_grammar_compile(headrace_grammar_compiler* compiler, int32_t kind,
                                       const char* text, headrace_grammar** grammar) {
  return guarded([&] {
    headrace_grammar*& out = deref(grammar, "grammar");
    const GrammarCompiler& with = deref(compiler, "compiler").compiler;
    out = new headrace_grammar{with.compile(to_kind(kind), or_empty(text))};
  });
}

headrace_code headrace_engine_compile_grammar(headrace_engine* engine, const char* model,
                                              int32_t kind, const char* text,
                                              headrace_grammar** grammar) {
  return guarded([&] {
    headrace_grammar*& out = deref(grammar, "grammar");
    const Engine& with = deref(engine, "engine").engine;
    out =
        new headrace_grammar{with.compile_grammar(or_empty(model), to_kind(kind), or_empty(text))};
  });
}

void headrace_grammar_release(headrace_grammar* grammar) { delete grammar; }
