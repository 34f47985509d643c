#pragma once

// WordPiece: from the front of a word, always the longest token.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/model/byte_trie.h"
#include "text/model/model.h"
#include "text/vocab/vocabulary.h"

namespace headrace::text {

struct WordPieceOptions {
  std::string unknown = "[UNK]";
  std::string prefix = "##";  ///< of tokens that don't begin a word
  size_t max_characters = 100;
};

class WordPiece final : public Model {
 public:
  WordPiece(std::shared_ptr<const Vocabulary> vocabulary, const WordPieceOptions& options);

  std::unique_ptr<ModelScratch> make_scratch() const override;
  /// A word that can't be cut, or is too long, is the unknown token. Throws Error(kInvalidArgument)
  /// if there is none.
  void encode(std::string_view word, bool ranges, ModelScratch* scratch, Fuel* fuel,
              std::vector<Token>* tokens) const override;

 private:
  bool too_long(std::string_view word) const noexcept;

  const bool byte_level_;
  const WordPieceOptions options_;
  int32_t unknown_id_;
  ByteTrie trie_;
  uint32_t inner_root_ = ByteTrie::kRoot;  ///< behind the prefix
  bool has_inner_ = true;                  ///< some token begins with the prefix
};

}  // namespace headrace::text
