#pragma once

// How texts are cut into words, by the names that GGUF files have for it (tokenizer.ggml.pre). The
// patterns are those of the models' own tokenizers, not what other programs approximate them by.

#include <string_view>

#include "text/files/tokenizer_tables.h"

namespace headrace::text {

/// Sets what the name decides: split, digits_first, ignore_merges and nfc. Throws
/// Error(kUnsupported) that lists the known names.
void set_pre(std::string_view name, TokenizerTables* tables);

}  // namespace headrace::text
