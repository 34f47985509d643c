#pragma once

// A tokenizer as tables: what sentencepiece's .model, tiktoken's and tekken's files come to, and
// what other containers of a vocabulary (GGUF) can fill in by themselves.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/files/tokenizer_parts.h"
#include "text/vocab/added_tokens.h"
#include "text/vocab/vocabulary.h"

namespace headrace::text {

/// How spaces are treated, in front of the model and behind it, where "▁" (U+2581) stands for one.
struct SpaceRules {
  bool add_dummy_prefix = true;  ///< a space in front of the text (behind it, if suffix)
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;  ///< spaces become "▁"
  bool whitespace_as_suffix = false;
  /// Only the text's first stretch gets the dummy prefix: not those behind added tokens
  /// ("legacy": false in tokenizer_config.json).
  bool first_stretch_only = false;
};

struct TokenizerTables {
  enum class Kind : uint8_t {
    kByteBpe,   ///< byte-level BPE: words by `split`
    kPieceBpe,  ///< sentencepiece's BPE, by scores, or by merges if there are any
    kUnigram,   ///< sentencepiece's
    kWordPiece,
  };
  Kind kind = Kind::kPieceBpe;

  /// With all tokens, control tokens as well. Byte-level for kByteBpe.
  std::shared_ptr<Vocabulary> vocabulary;
  int32_t unknown_id = Vocabulary::kNoId;
  bool byte_fallback = false;

  // kPieceBpe, kUnigram.
  std::vector<float> scores;  ///< by id
  std::string charsmap;       ///< sentencepiece's precompiled one; empty: none
  SpaceRules spaces;
  std::string unknown_text = " \u2047 ";  ///< what the unknown token is decoded to

  // kByteBpe, and merges kPieceBpe as well. Without merges each token is what any two tokens make
  // whose bytes it has, the lowest id first (tiktoken).
  std::vector<std::pair<std::string, std::string>> merges;  ///< as spelled, in order of rank
  bool ignore_merges = false;  ///< a word that is a token is that token
  bool nfc = false;            ///< texts are put into that normal form
  bool digits_first = false;   ///< each digit is a word; `split` sees what is between
  /// The patterns, one after the other, whose matches are words; what none matches is a word, too.
  std::vector<std::string> split;

  bool lowercase = false;  ///< kWordPiece: texts are lower-cased, and lose their accents

  /// Tokens that are cut out of texts first, as they are written. The vocabulary has each of them
  /// with its id.
  std::vector<AddedToken> added;
  /// Put in front of a text and behind it where special tokens are asked for; kNoId: none is.
  int32_t bos_id = Vocabulary::kNoId;
  int32_t eos_id = Vocabulary::kNoId;
};

/// How they are decoded.
PieceRules piece_rules(const TokenizerTables& tables);

/// Throws Error: kCorruptFile (tables that don't fit each other), kLimitExceeded, kUnsupported.
TokenizerParts make_parts(TokenizerTables tables);

}  // namespace headrace::text
