#pragma once

// The steps of decoders, as functions of one token.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "text/normalize/normalizer.h"

namespace headrace::text {

inline constexpr std::string_view kReplacementText = "\xEF\xBF\xBD";  // U+FFFD

enum class StageKind : uint8_t {
  kReplace,       ///< `pattern` by `content`
  kNormalize,     ///< what the normalizer of the same name does
  kStrip,         ///< up to `start` leading and `stop` trailing `pattern`s, each one character
  kMetaspace,     ///< `pattern` by " "; by nothing in the first token, if `start_rule`
  kWordPiece,     ///< " " in front, unless a token is the first one or begins with `pattern`
  kSpaces,        ///< " " in front, unless a token is the first one
  kSuffix,        ///< `pattern` by " "; by nothing in the last token
  kByteLevel,     ///< the bytes that the characters of the alphabet stand for
  kByteFallback,  ///< runs of <0xNN> by what they are in UTF-8
  kUtf8,          ///< bytes by text, with U+FFFD for what is no UTF-8
  kStripStart,    ///< up to `start` leading `pattern`s of a whole text
};

struct Stage {
  StageKind kind{};
  std::string pattern = {};
  std::string content = {};
  size_t start = 0;
  size_t stop = 0;
  bool start_rule = false;
  bool cleanup = false;  ///< kWordPiece
  std::shared_ptr<const Normalizer> normalizer = {};
};

/// Changes a token; for kByteFallback and kUtf8: one that is all there is. `first`, `last`: of an
/// output. Throws Error(kLimitExceeded).
void apply_stage(const Stage& stage, bool first, bool last, std::string* token);

/// The byte that a <0xNN> token stands for; -1 for any other token.
int byte_of(std::string_view token) noexcept;

}  // namespace headrace::text
