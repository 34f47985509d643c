#pragma once

// Vocabularies of byte-level tokens with ranks: tiktoken's files, and Mistral's tekken.json.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/files/tokenizer_tables.h"

namespace headrace::text {

inline constexpr size_t kMaxByteTokenBytes = 1u << 14;

/// Does a tokenizer.model hold tiktoken's lines, not sentencepiece's protocol buffer?
bool is_tiktoken(std::string_view file) noexcept;

/// Lines of a token's bytes as base64 and its rank, which is its id. pre: the name of how texts are
/// cut into words (pre_names.h). Throws Error: kCorruptFile, kLimitExceeded, kUnsupported.
TokenizerTables read_tiktoken(std::string_view file, std::string_view pre);

/// A special token without an id in the vocabulary; a text is cut at it. Throws Error(kCorruptFile)
/// if the id or the text is taken.
void add_special(int32_t id, const std::string& content, TokenizerTables* tables);

/// Names of the special tokens behind Qwen 1's and Llama 3's vocabularies, in order of id.
std::vector<std::string> qwen_specials();
std::vector<std::string> llama3_specials();

/// tekken.json. The special tokens come first; texts are cut into words by the file's own pattern.
TokenizerTables read_tekken(std::string_view file);

}  // namespace headrace::text
