#pragma once

// One output's way through a decoder's chain.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/decode/decoder.h"

namespace headrace::text {

/// Text is held back only while later tokens can still change it: an unfinished character, a run of
/// byte tokens, the last token where it has a rule of its own, or all of it where the chain needs
/// the whole text. Copies go on from where the original stands.
class ChainRun {
 public:
  /// `decoder` has to stay. at_start false: the first token is as if others had settled before it.
  explicit ChainRun(const Decoder& decoder, bool at_start = true);

  /// Appends what a token settles. REQUIRES: Decoder::prepare().
  void push(std::string_view token, std::string* text) { feed(decoder_->alone(), token, text); }
  /// Appends what is still held. The run is used up.
  void finish(std::string* text);
  /// Has a token's text not been given yet?
  bool holding() const noexcept;

 private:
  struct State {
    bool seen = false;   ///< a token; kSuffix: `held` is one
    size_t left = 0;     ///< kStripStart
    std::string held;    ///< kSuffix: a token; kByteFallback: a run; kUtf8: part of a character
    std::string output;  ///< what the stage hands on
  };

  void feed(size_t stage, std::string_view token, std::string* text);
  void apply(size_t stage, std::string_view token, std::string* text);
  void feed_utf8(size_t stage, std::string_view bytes, std::string* text);
  void feed_stripped(size_t stage, std::string_view token, std::string* text);
  void flush(size_t stage, std::string* text);
  void flush_bytes(size_t stage, std::string* text);

  const Decoder* decoder_;
  std::vector<State> states_;  ///< of the stages that stream
  std::string whole_;          ///< what the others will get
};

}  // namespace headrace::text
