#pragma once

// The side files of a tokenizer: tokenizer_config.json, special_tokens_map.json and
// added_tokens.json.

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/files/tokenizer_parts.h"

namespace headrace::text {

inline constexpr std::array kSpecialTokenNames = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

/// Each file may be missing.
struct TokenizerConfig {
  /// "bos_token" and "<s>", ...
  std::vector<std::pair<std::string, std::string>> special_tokens;
  std::vector<std::string> additional_special_tokens;
  std::vector<AddedToken> added_tokens;  ///< in order of id
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> legacy;
  std::string tokenizer_class;

  const std::string* special_token(std::string_view name) const noexcept;
};

/// Of a folder, or of a .gguf file, whose metadata has the same. Throws Error, which names the
/// file.
TokenizerConfig read_tokenizer_config(const std::string& folder);

/// Added tokens that the tokenizer lacks, and special ones that it has as words alone: these keep
/// their ids, and a text isn't cut inside of them.
void add_missing_tokens(const TokenizerConfig& config, TokenizerParts* parts);

}  // namespace headrace::text
