#pragma once

// From ids to text: a vocabulary's tokens as decoders take them.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "headrace/grammar.h"
#include "text/decode/decoder.h"
#include "text/vocab/vocabulary.h"

namespace headrace::text {

/// An added token. Of one id the last counts; it takes the place of the vocabulary's.
struct AddedText {
  int32_t id = 0;
  std::string content;
  /// What decoders get: the content, normalized if the token is.
  std::string decoded;
  bool special = false;
};

/// How a sentencepiece model decodes.
struct PieceRules {
  bool drops_space = true;         ///< one in front of a stretch, which encoding put there
  bool drops_every_space = false;  ///< all in front of a stretch
  std::string unknown_text = " \xE2\x81\x87 ";
};

/// Immutable: any thread may use one.
class TokenDecoder {
 public:
  /// Throws Error(kLimitExceeded).
  TokenDecoder(const Vocabulary& vocabulary, std::span<const AddedText> added, Decoder decoder);
  /// Added and special tokens cut an output into stretches, each of which sentencepiece decodes.
  TokenDecoder(const Vocabulary& vocabulary, std::span<const AddedText> added, PieceRules rules);

  /// Of ids without a token: none of them is known.
  struct Token {
    std::string_view bytes;  ///< prepared for the decoder; a piece's text later in a stretch
    bool known = false;
    bool skipped = false;        ///< where special tokens are
    bool special = false;        ///< control tokens, for grammars
    bool is_byte = false;        ///< of a piece: `bytes` is a byte of a character
    bool cuts = false;           ///< among pieces: an added or special token
    bool leading_space = false;  ///< of a piece: it goes at the start of a stretch
    bool unknown = false;        ///< of a piece: it stands for what has no piece
    bool ends_start = false;     ///< of a piece: what follows it isn't at the start of a stretch
  };
  Token at(int32_t id) const noexcept {
    return id < 0 || id >= size() ? Token{} : token_of(entries_[static_cast<size_t>(id)]);
  }
  /// Every id is less.
  int32_t size() const noexcept { return static_cast<int32_t>(entries_.size()); }
  /// Null: it decodes as sentencepiece does.
  const Decoder* chain() const noexcept { return std::get_if<Decoder>(&rules_); }
  /// Ids that are skipped with special tokens, in order, with what decides it.
  const std::vector<std::pair<int32_t, std::string>>& skipped() const noexcept { return skipped_; }

  /// Ids without a token have no text.
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;
  /// The text of a token in the middle of an output; special ones as they are written.
  std::string token_text(int32_t id) const;
  /// The bytes of a token that may be a part of a character; none if its text is all there is.
  std::optional<std::string> part_bytes(int32_t id) const;
  /// What ids add to the text of an output. Throws Error(kUnsupported) if texts aren't made token
  /// by token.
  VocabularyBytes token_bytes() const;

 private:
  enum Flag : uint8_t {
    kKnown = 1,
    kSkipped = 2,
    kSpecial = 4,
    kByte = 8,
    kCuts = 16,
    kLeadingSpace = 32,
    kEndsStart = 64,
    kUnknown = 128,
  };
  static constexpr uint32_t kMaxTokenBytes = (1u << 24) - 1;
  struct Entry {
    uint32_t offset = 0;
    uint32_t size : 24 = 0;
    uint32_t flags : 8 = 0;
  };

  Token token_of(const Entry& entry) const noexcept {
    const auto has = [&](Flag flag) { return (entry.flags & flag) != 0; };
    return {.bytes = std::string_view(arena_).substr(entry.offset, entry.size),
            .known = has(kKnown),
            .skipped = has(kSkipped),
            .special = has(kSpecial),
            .is_byte = has(kByte),
            .cuts = has(kCuts),
            .leading_space = has(kLeadingSpace),
            .unknown = has(kUnknown),
            .ends_start = has(kEndsStart)};
  }
  void set(int32_t id, std::string_view bytes, unsigned flags);
  void flag(int32_t id, Flag flag, bool on);
  void skip(int32_t id, const std::string& text);
  void set_piece(int32_t id, std::string_view piece, TokenKind kind, const PieceRules& rules);
  VocabularyBytes byte_level_bytes() const;
  VocabularyBytes chain_bytes(const Decoder& chain) const;
  VocabularyBytes piece_bytes(const PieceRules& rules) const;

  std::string arena_;
  std::vector<Entry> entries_;
  std::vector<std::pair<int32_t, std::string>> skipped_;
  std::vector<std::pair<int32_t, std::string>> names_;  ///< of control tokens, by id
  std::variant<Decoder, PieceRules> rules_;
};

}  // namespace headrace::text
