#pragma once

#include <memory>
#include <string>

#include "grammar/any_compiler.h"

namespace headrace::internal {

/// Throws what GrammarCompiler's constructor with a library does.
std::unique_ptr<AnyCompiler> make_llguidance_compiler(const std::string& library,
                                                      const VocabularyBytes& vocabulary,
                                                      const GrammarLimits& limits);

}  // namespace headrace::internal
