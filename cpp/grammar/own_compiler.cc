#include "grammar/own_compiler.h"

#include <utility>

#include "base/check.h"
#include "grammar/automaton/constraint.h"
#include "grammar/check_vocabulary.h"
#include "grammar/pattern/pattern.h"
#include "grammar/schema/schema.h"

namespace headrace::internal {

namespace {

using grammar::Automaton;
using grammar::Budget;
using grammar::Expressions;

constexpr size_t kMostFrames = 1 << 20;  // calls within one output, of 40 bytes

/// The whole output is one expression.
Automaton regex_automaton(const std::string& text, const GrammarLimits& limits) {
  Budget budget(limits.compile_fuel, limits.max_token_items);
  Expressions expressions({.max_states = limits.max_lexer_states});
  grammar::Chars chars(&expressions);
  const grammar::Expr whole = grammar::read_pattern(text, {}, &expressions, &chars, &budget);
  grammar::Program program(limits.max_grammar_size);
  const grammar::NodeId rule = program.match(whole, program.finish());
  const grammar::NodeId start = program.call(rule, program.finish());
  program.link(&expressions, &budget);
  if (!program.node(start).productive) {
    throw_error(ErrorCode::kInvalidArgument, "nothing matches it");
  }
  return {{std::move(program), std::move(expressions), limits.max_lexer_states, kMostFrames},
          start};
}

Automaton schema_automaton(const std::string& text, const GrammarLimits& limits) {
  grammar::SchemaProgram made = grammar::compile_schema(text, limits);
  return {
      {std::move(made.program), std::move(made.expressions), limits.max_lexer_states, kMostFrames},
      made.start};
}

class OwnCompiler final : public AnyCompiler {
 public:
  OwnCompiler(const VocabularyBytes& vocabulary, const GrammarLimits& limits)
      : vocabulary_((check_vocabulary(vocabulary),
                     std::make_shared<const grammar::Vocabulary>(vocabulary))),
        limits_(limits) {}

  std::shared_ptr<TokenConstraint> compile(GrammarKind kind,
                                           const std::string& text) const override {
    const char* const shown = shown_name(kind);
    if (kind != GrammarKind::kJsonSchema && kind != GrammarKind::kRegex) {
      throw_error(ErrorCode::kUnsupported,
                  "only llguidance reads grammars in Lark and in its own form: give "
                  "GrammarCompiler the path of its library.");
    }
    try {
      return grammar::OwnConstraint::make(vocabulary_,
                                          kind == GrammarKind::kRegex
                                              ? regex_automaton(text, limits_)
                                              : schema_automaton(text, limits_),
                                          limits_);
    } catch (const InternalError&) {
      throw;
    } catch (const Error& error) {
      const ErrorCode code = error.code() == ErrorCode::kUnsupported ? ErrorCode::kUnsupported
                                                                     : ErrorCode::kInvalidArgument;
      throw_error(code, "the ", shown, " can't be used: ", error.what(), ".");
    }
  }

  const std::string& library_version() const override { return version_; }

 private:
  const std::shared_ptr<const grammar::Vocabulary> vocabulary_;
  const GrammarLimits limits_;
  const std::string version_ = "headrace";
};

}  // namespace

std::unique_ptr<AnyCompiler> make_own_compiler(const VocabularyBytes& vocabulary,
                                               const GrammarLimits& limits) {
  return std::make_unique<OwnCompiler>(vocabulary, limits);
}

}  // namespace headrace::internal
