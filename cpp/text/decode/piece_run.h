#pragma once

// Sentencepiece's decoding rules, one id at a time.

#include <string>

#include "text/decode/token_decoder.h"

namespace headrace::text {

/// Bytes settle as soon as they are characters; one that can't begin a character is U+FFFD at once.
class PieceRun {
 public:
  /// at_start: of a stretch.
  explicit PieceRun(bool at_start) : at_start_(at_start) {}

  /// Appends what a token settles. hidden: its own text stays away.
  void push(const TokenDecoder::Token& token, bool hidden, std::string* text);
  /// Appends what is still held.
  void finish(std::string* text);
  bool holding() const noexcept { return !bytes_.empty(); }

 private:
  void settle_bytes(std::string* text);

  std::string bytes_;  ///< of an unfinished character
  bool at_start_;
};

}  // namespace headrace::text
