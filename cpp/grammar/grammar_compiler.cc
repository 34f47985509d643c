#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "grammar/any_compiler.h"
#include "grammar/llguidance_compiler.h"
#include "grammar/own_compiler.h"
#include "headrace/grammar.h"

namespace headrace::internal {

const char* shown_name(GrammarKind kind) {
  switch (kind) {
    case GrammarKind::kJsonSchema:
      return "JSON schema";
    case GrammarKind::kRegex:
      return "regular expression";
    case GrammarKind::kLark:
    case GrammarKind::kLlguidance:
      return "grammar";
  }
  throw_error(ErrorCode::kInvalidArgument, "kind must be one of GrammarKind, got ",
              static_cast<int>(kind), ".");
}

}  // namespace headrace::internal

namespace headrace::inline v0 {

class GrammarCompiler::Impl {
 public:
  Impl(std::unique_ptr<const internal::AnyCompiler> compiler, const GrammarLimits& limits)
      : compiler_(std::move(compiler)), limits_(limits) {}

  std::shared_ptr<TokenConstraint> compile(GrammarKind kind, const std::string& text) const {
    const char* const shown = internal::shown_name(kind);
    const size_t limit =
        kind == GrammarKind::kJsonSchema ? limits_.max_schema_bytes : limits_.max_grammar_bytes;
    if (text.size() > limit) {
      throw_error(ErrorCode::kInvalidArgument, "the ", shown, " has ", text.size(),
                  " bytes, more than the limit of ", limit, ".");
    }
    if (text.find('\0') != std::string::npos) {
      throw_error(ErrorCode::kInvalidArgument, "the ", shown, " contains a NUL character.");
    }
    return compiler_->compile(kind, text);
  }

  const std::string& library_version() const { return compiler_->library_version(); }

 private:
  const std::unique_ptr<const internal::AnyCompiler> compiler_;
  const GrammarLimits limits_;
};

GrammarCompiler::GrammarCompiler(const VocabularyBytes& vocabulary, const GrammarLimits& limits)
    : impl_(std::make_unique<Impl>(internal::make_own_compiler(vocabulary, limits), limits)) {}

GrammarCompiler::GrammarCompiler(const std::string& library, const VocabularyBytes& vocabulary,
                                 const GrammarLimits& limits)
    : impl_(std::make_unique<Impl>(internal::make_llguidance_compiler(library, vocabulary, limits),
                                   limits)) {}

GrammarCompiler::~GrammarCompiler() = default;

std::shared_ptr<TokenConstraint> GrammarCompiler::compile(GrammarKind kind,
                                                          const std::string& text) const {
  return impl_->compile(kind, text);
}

const std::string& GrammarCompiler::library_version() const { return impl_->library_version(); }

}  // namespace headrace::inline v0
