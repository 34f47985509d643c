#pragma once

// Model folders whose tokenizer is a vocabulary file alone, without a tokenizer.json.

#include <optional>
#include <string>

#include "text/files/tokenizer_config.h"
#include "text/files/tokenizer_parts.h"

namespace headrace::text {

/// From tokenizer.model, spm.model or ernie_token_100k.model (sentencepiece's, or tiktoken's under
/// the first name), qwen.tiktoken, tiktoken.model or tekken.json; none if the folder has none of
/// these. The config's tokens are in it, and so are add_bos and add_eos: as its post-processor.
/// `path` gets the file's. Throws Error, which names the file.
std::optional<TokenizerParts> read_vocabulary_folder(const std::string& folder,
                                                     const TokenizerConfig& config,
                                                     std::string* path);

}  // namespace headrace::text
