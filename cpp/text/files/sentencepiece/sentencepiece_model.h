#pragma once

// Files of the sentencepiece package (tokenizer.model, spm.model): its protocol buffer.

#include <string_view>

#include "text/files/tokenizer_tables.h"

namespace headrace::text {

/// Limits beyond those of Vocabulary.
inline constexpr size_t kMaxPieceBytes = 1u << 14;

/// The tables of a model, with no added tokens. Throws Error: kCorruptFile, kLimitExceeded, and
/// kUnsupported for model types and settings that aren't known.
TokenizerTables read_sentencepiece_model(std::string_view file);

}  // namespace headrace::text
