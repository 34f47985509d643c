#pragma once

// What the sentencepiece package does to a text before its model sees it.

#include <optional>
#include <string_view>

#include "text/files/sentencepiece/piece_matcher.h"
#include "text/files/tokenizer_tables.h"
#include "text/normalize/charsmap.h"
#include "text/normalize/normalizer.h"

namespace headrace::text {

class PieceNormalizer final : public Normalizer {
 public:
  /// Throws Error(kCorruptFile) for a wrong charsmap.
  PieceNormalizer(const Vocabulary& vocabulary, std::string_view charsmap,
                  const SpaceRules& spaces);

  void apply(NormalText* text, Fuel* fuel) const override;

 private:
  class Pass;

  std::optional<Charsmap> rules_;
  PieceMatcher user_defined_;
  SpaceRules spaces_;
};

}  // namespace headrace::text
