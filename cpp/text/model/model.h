#pragma once

// Step 4 of encoding: a word's tokens.

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/fuel.h"
#include "text/normalize/normal_text.h"

namespace headrace::text {

struct Token {
  int32_t id = 0;
  Range bytes;  ///< of the word
};

/// What a call of `encode` works in; reused from word to word, and from call to call by one thread
/// at a time.
class ModelScratch {
 public:
  virtual ~ModelScratch() = default;
};

/// Immutable: any thread may use one.
class Model {
 public:
  virtual ~Model() = default;
  virtual std::unique_ptr<ModelScratch> make_scratch() const = 0;
  /// Appends the tokens of a word: bytes where the vocabulary is byte-level, else UTF-8. Ranges are
  /// only kept up if `ranges`. REQUIRES: a scratch that this model made.
  virtual void encode(std::string_view word, bool ranges, ModelScratch* scratch, Fuel* fuel,
                      std::vector<Token>* tokens) const = 0;
};

}  // namespace headrace::text
