#pragma once

// Texts and ids: the tokenizer of a model folder.
//
//   auto tokenizer = headrace::Tokenizer::load("/models/Qwen3-0.6B");
//   std::vector<int32_t> ids;
//   tokenizer->encode("Hello", {}, &ids);
//   std::string text = tokenizer->decode(ids, /*skip_special=*/true);

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/abi.h"
#include "headrace/grammar.h"

namespace headrace::text {
class TokenDecoder;
}

namespace headrace::inline v0 {

/// Bytes of a text.
struct TextSpan {
  size_t begin = 0;
  size_t end = 0;

  friend bool operator==(const TextSpan&, const TextSpan&) = default;
};

struct EncodeOptions {
  /// The special tokens that the tokenizer puts around a text belong to it.
  bool add_special = false;
  /// Special tokens that are written out in the text are text. Otherwise they become their ids.
  bool special_as_text = false;
  /// Refuse a text that can't be so few tokens, each as long as the vocabulary's longest, without
  /// tokenizing it; there may be more ids all the same. 0: any.
  size_t max_tokens = 0;
};

/// A token that isn't ordinary text.
struct SpecialToken {
  std::string role;  ///< "bos_token", "eos_token", ...; "" for one without a role
  std::string text;
  int32_t id = -1;  ///< -1: the tokenizer has no such token
};

/// Immutable: any thread may use one. Texts are UTF-8.
class HEADRACE_API Tokenizer {
 public:
  /// Reads the tokenizer of a model folder, or of a .gguf file, whose path is given instead. Throws
  /// Error that names the file: kNotFound if there is none, kCorruptFile, kUnsupported,
  /// kLimitExceeded.
  static std::shared_ptr<const Tokenizer> load(const std::string& folder);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// The ids of a text and, unless `spans` is null, what of the text each stands for; special
  /// tokens around it have empty ones. Throws Error(kInvalidArgument) for what isn't UTF-8 or can't
  /// be spelled in the vocabulary, Error(kLimitExceeded) for a text that is too long.
  void encode(std::string_view text, const EncodeOptions& options, std::vector<int32_t>* ids,
              std::vector<TextSpan>* spans = nullptr) const;

  /// The ids of two texts as one, with the special tokens that belong around and between them, of
  /// the ids of each without any; and the type of each id, 0 or more. Throws Error(kUnsupported) if
  /// the tokenizer doesn't say how two texts are joined.
  void join_pair(std::span<const int32_t> first, std::span<const int32_t> second,
                 std::vector<int32_t>* ids, std::vector<int32_t>* types) const;

  /// The text of ids. Unknown ids have no text.
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;
  /// The text that a token adds in the middle of an output: special tokens as they are written,
  /// U+FFFD for a part of a character, "" for an id without a token.
  std::string token_text(int32_t id) const;
  /// The bytes that it adds there, also those of a part of a character.
  std::string token_bytes(int32_t id) const;

  /// A token as the vocabulary spells it; none of an id without a token.
  std::optional<std::string> spelling(int32_t id) const;
  std::optional<int32_t> id(std::string_view spelling) const;
  /// How many tokens there are, added ones included.
  int32_t size() const noexcept;
  /// Every id is less.
  int32_t end() const noexcept;
  /// Bytes of the longest token's spelling.
  size_t longest_token() const noexcept;
  /// Special tokens: those that have a role first.
  std::vector<SpecialToken> special() const;
  /// The bytes that all ids add to a text, for grammars. Throws Error(kUnsupported) if texts aren't
  /// made token by token.
  VocabularyBytes token_bytes() const;

  /// For headrace/text_output.h.
  const std::shared_ptr<const text::TokenDecoder>& decoder() const noexcept;

 private:
  class HEADRACE_LOCAL Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace::inline v0
