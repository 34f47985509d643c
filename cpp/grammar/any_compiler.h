#pragma once

#include <memory>
#include <string>

#include "headrace/grammar.h"

namespace headrace::internal {

/// What makes constraints of grammars: llguidance, or the own engine.
class AnyCompiler {
 public:
  virtual ~AnyCompiler() = default;

  /// See GrammarCompiler::compile. `text` is within its limit and has no NUL.
  virtual std::shared_ptr<TokenConstraint> compile(GrammarKind kind,
                                                   const std::string& text) const = 0;
  virtual const std::string& library_version() const = 0;
};

/// What a kind is called in messages. Throws Error(kInvalidArgument) for none.
const char* shown_name(GrammarKind kind);

}  // namespace headrace::internal
