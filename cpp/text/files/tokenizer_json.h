#pragma once

// tokenizer.json, the file of the `tokenizers` package.

#include <span>
#include <string_view>
#include <vector>

#include "text/files/tokenizer_parts.h"

namespace headrace::text {

/// Reads the text of a tokenizer.json. Its truncation, padding and dropout are ignored: they are
/// for training. Throws Error that says what is wrong, and where: kCorruptFile, kUnsupported,
/// kLimitExceeded.
TokenizerParts read_tokenizer_json(std::string_view text);

/// Fills in the patterns of normalized tokens.
void normalize_patterns(const Normalizer* normalizer, std::vector<AddedToken>* tokens);

}  // namespace headrace::text
