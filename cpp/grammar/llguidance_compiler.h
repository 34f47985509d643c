#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "grammar/any_compiler.h"

namespace headrace::internal {

/// Processor time that a grammar has to compile and to find its first mask.
inline constexpr std::chrono::nanoseconds kPatience = std::chrono::seconds(5);

/// Grammars that take more than `patience` are refused. Throws what GrammarCompiler's constructor
/// with a library does.
std::unique_ptr<AnyCompiler> make_llguidance_compiler(
    const std::string& library, const VocabularyBytes& vocabulary, const GrammarLimits& limits,
    std::chrono::nanoseconds patience = kPatience);

}  // namespace headrace::internal
