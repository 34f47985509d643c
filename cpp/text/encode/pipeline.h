#pragma once

// From a text to ids, by all steps.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "text/encode/post_processor.h"
#include "text/files/tokenizer_parts.h"

namespace headrace::text {

/// Whether the ids of a text begin or end with a token, over what the post-processor says.
struct SequenceEnds {
  int32_t bos = Vocabulary::kNoId;
  int32_t eos = Vocabulary::kNoId;
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;

  void apply(std::vector<int32_t>* ids, std::vector<Range>* ranges) const;
};

/// What a call works in, reused from call to call.
struct EncodeScratch {
  std::unique_ptr<ModelScratch> model;
  std::vector<Token> tokens;
  std::vector<AddedTokens::Piece> raw;
  std::vector<AddedTokens::Piece> normalized;
};

/// Immutable: any thread may use one.
class Pipeline {
 public:
  static constexpr size_t kMaxTextBytes = size_t{256} << 20;

  /// Throws Error, as PostProcessor does.
  Pipeline(TokenizerParts parts, SequenceEnds ends);

  const TokenizerParts& parts() const noexcept { return parts_; }
  const PostProcessor& post_processor() const noexcept { return post_processor_; }
  std::unique_ptr<EncodeScratch> make_scratch() const;

  /// The ids and, unless null, the bytes of the text that each stands for; special tokens
  /// around it have none (0..0). special: those of the post-processor belong to it.
  /// special_as_text: special tokens in the text are text. Throws Error(kInvalidArgument) for what
  /// isn't UTF-8, Error(kLimitExceeded) for a text that is too long or takes too many steps.
  void encode(std::string_view text, bool special, bool special_as_text, EncodeScratch* scratch,
              std::vector<int32_t>* ids, std::vector<Range>* ranges) const;

 private:
  class Run;

  TokenizerParts parts_;
  PostProcessor post_processor_;
  SequenceEnds ends_;
};

}  // namespace headrace::text
