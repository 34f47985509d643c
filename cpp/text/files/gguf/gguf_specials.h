#pragma once

// Tokens of a GGUF file that have a part to play: the keys tokenizer.ggml.<role>_token_id.

#include <cstdint>
#include <string_view>
#include <vector>

#include "gguf/gguf_header.h"
#include "text/files/tokenizer_config.h"

namespace headrace::text {

inline constexpr std::string_view kGgufTokens = "tokenizer.ggml.tokens";

/// Kinds of tokens, by their numbers in tokenizer.ggml.token_type.
enum class GgufTokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

/// tokenizer.ggml.tokens. Throws Error(kCorruptFile) that names the key: there are none, too many,
/// one too long, or one that is not UTF-8.
std::vector<std::string_view> gguf_tokens(const GgufHeader& header);

/// Of each token. Throws Error(kCorruptFile) that names the key: there are none, another number of
/// them, or one that isn't known.
std::vector<GgufTokenType> gguf_token_types(const GgufHeader& header, size_t num_tokens);

/// Of role "bos", "eos", ... ; kNoId if the file names none. Throws Error(kCorruptFile) that names
/// the key where no token has that id.
int32_t gguf_special_id(const GgufHeader& header, std::string_view role, size_t num_tokens);

/// The ids that end an answer, in order: eos, eot, eom, and tokens known by their texts, as the
/// format has no list of them. Throws as above.
std::vector<int32_t> gguf_stop_ids(const GgufHeader& header);

/// What tokenizer_config.json has beside a folder's tokenizer. Throws as above.
TokenizerConfig gguf_tokenizer_config(const GgufHeader& header);

}  // namespace headrace::text
