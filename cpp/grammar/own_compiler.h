#pragma once

#include <memory>

#include "grammar/any_compiler.h"

namespace headrace::internal {

/// The engine that needs no library. Throws Error(kInvalidArgument).
std::unique_ptr<AnyCompiler> make_own_compiler(const VocabularyBytes& vocabulary,
                                               const GrammarLimits& limits);

}  // namespace headrace::internal
