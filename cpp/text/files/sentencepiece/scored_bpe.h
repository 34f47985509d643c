#pragma once

// Byte pair encoding by scores, exactly as the sentencepiece package has it: of all neighbours
// whose joined text is a piece, those whose piece has the highest score are joined first, and of
// equal scores the leftmost.

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/files/sentencepiece/piece_matcher.h"
#include "text/model/junctions.h"
#include "text/model/model.h"
#include "text/vocab/vocabulary.h"

namespace headrace::text {

struct ScoredBpeOptions {
  int32_t unknown_id = Vocabulary::kNoId;
  bool byte_fallback = false;  ///< unknown characters become "<0x41>"...: all of them exist
};

/// The model for any vocabulary. One that a list of merges can stand for is faster as that.
class ScoredBpe final : public Model {
 public:
  /// scores: by id.
  ScoredBpe(std::shared_ptr<const Vocabulary> vocabulary, std::vector<float> scores,
            const ScoredBpeOptions& options);

  std::unique_ptr<ModelScratch> make_scratch() const override;
  void encode(std::string_view word, bool ranges, ModelScratch* scratch, Fuel* fuel,
              std::vector<Token>* tokens) const override;

 private:
  class Merging;

  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<float> scores_;
  ScoredBpeOptions options_;
  PieceMatcher user_defined_;
  Junctions junctions_;
  std::array<int32_t, 256> byte_ids_{};
};

}  // namespace headrace::text
