#pragma once

// Incremental detokenizing: ids in, settled text out.

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "text/decode/chain_run.h"
#include "text/decode/piece_run.h"
#include "text/decode/token_decoder.h"

namespace headrace::text {

struct DetokenizeOptions {
  bool skip_special = true;
  std::span<const std::string> shown;  ///< special tokens that stay in the text
  std::span<const int32_t> after;      ///< ids that the output goes on from
};

/// Turns the ids of one output into text. The texts of all calls, joined, are the decoder's
/// `decode` of all ids; of an output that goes on from a prompt, what it adds to the prompt's text.
/// Copies go on from where the original stands.
class Detokenizer {
 public:
  /// `decoder` has to stay.
  Detokenizer(const TokenDecoder& decoder, const DetokenizeOptions& options);

  /// Appends the text that this id settles: none while later ids could still change it. Whole
  /// characters.
  void push(int32_t id, std::string* text);
  /// Appends the text still held back, after the last id.
  void finish(std::string* text);
  /// Has an id's text not been given yet?
  bool holding() const noexcept;

 private:
  bool hides(int32_t id, const TokenDecoder::Token& token) const noexcept;
  bool starts_behind(std::span<const int32_t> ids) const noexcept;
  void go_on_from(std::span<const int32_t> ids, ChainRun* run);
  void append_own(const std::string& settled, std::string* text);

  const TokenDecoder* decoder_;
  bool skip_special_;
  std::vector<int32_t> shown_;  ///< ids
  std::variant<ChainRun, PieceRun> run_;
  std::string earlier_;  ///< held text of the prompt, which is no part of the output
};

}  // namespace headrace::text
