#pragma once

// The tokenizer in a GGUF file's metadata (tokenizer.ggml.*).

#include "gguf/gguf_header.h"
#include "text/files/tokenizer_tables.h"

namespace headrace::text {

/// Of tokenizer.ggml.model gpt2 (byte-level BPE), llama (sentencepiece's BPE), gemma4 (BPE with
/// merges, of pieces), t5 (Unigram) and bert (WordPiece). Tokens of types 3 and 4 are added ones,
/// matched as they are written; [PADi] and empty tokens are ids without a token.
///
/// Files don't say whether WordPiece lower-cases: it does unless ordinary tokens have capitals.
///
/// Throws Error: kCorruptFile that names the key, for what is missing, doesn't fit or is out of
/// range; kUnsupported for another model, or a tokenizer.ggml.pre that isn't known.
TokenizerTables read_gguf_tokenizer(const GgufHeader& header);

}  // namespace headrace::text
