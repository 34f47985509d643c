#pragma once

// Unigram language models: of all ways to cut a word into tokens, the one of highest total score.

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/model/byte_trie.h"
#include "text/model/model.h"
#include "text/vocab/vocabulary.h"

namespace headrace::text {

struct UnigramOptions {
  /// Whose arithmetic: they round differently, and differ in what may match.
  enum class Rules : uint8_t {
    kTokenizerJson,  ///< doubles; every token may match, the unknown one's spelling, too
    kSentencePiece,  ///< floats; normal and user-defined pieces, these nearly always
  };
  Rules rules = Rules::kTokenizerJson;
  int32_t unknown_id = Vocabulary::kNoId;
  bool byte_fallback = false;  ///< unknown characters become "<0x41>"..., if there are all of them
};

class Unigram final : public Model {
 public:
  /// scores: by id. Throws Error(kCorruptFile): another number of scores than of ids, an unknown id
  /// that has no token, a score that is no number.
  Unigram(std::shared_ptr<const Vocabulary> vocabulary, std::vector<double> scores,
          const UnigramOptions& options);

  std::unique_ptr<ModelScratch> make_scratch() const override;
  /// Throws Error(kInvalidArgument) for a character without a token if there is no unknown token.
  void encode(std::string_view word, bool ranges, ModelScratch* scratch, Fuel* fuel,
              std::vector<Token>* tokens) const override;

 private:
  template <class Sum>
  class Search;

  void check(const Vocabulary& vocabulary) const;
  void set_scores();

  std::shared_ptr<const Vocabulary> vocabulary_;
  UnigramOptions options_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  ByteTrie trie_;
  std::array<int32_t, 256> byte_ids_{};
};

}  // namespace headrace::text
