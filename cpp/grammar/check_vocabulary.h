#pragma once

#include <cstdint>

#include "headrace/grammar.h"

namespace headrace::internal {

inline constexpr size_t kMostVocabularyBytes = size_t{1} << 30;

/// Throws Error(kInvalidArgument) if the number of ids makes no sense, or one of first_tokens and
/// special_tokens has an id outside, or the name of a special token isn't in UTF-8. Returns the
/// number of ids.
int32_t check_vocabulary(const VocabularyBytes& vocabulary);

/// Bytes that UTF-8 doesn't have in any place: 0xFF, by which llguidance marks special tokens.
bool is_text(const std::string& bytes);

}  // namespace headrace::internal
