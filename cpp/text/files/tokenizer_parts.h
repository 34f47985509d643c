#pragma once

// What a tokenizer is made of, whatever files it was read from.

#include <memory>
#include <optional>

#include "text/decode/token_decoder.h"
#include "text/json/value.h"
#include "text/model/model.h"
#include "text/normalize/normalizer.h"
#include "text/split/splitter.h"
#include "text/vocab/added_tokens.h"
#include "text/vocab/vocabulary.h"

namespace headrace::text {

struct TokenizerParts {
  std::shared_ptr<const Vocabulary> vocabulary;
  std::unique_ptr<const Model> model;
  std::unique_ptr<const Normalizer> normalizer;  ///< null: texts stay as they are
  SplitterSpec splitter;
  json::Value post_processor;             ///< as in tokenizer.json
  json::Value decoder;                    ///< as in tokenizer.json
  std::optional<PieceRules> piece_rules;  ///< decoded as sentencepiece does, without `decoder`
  AddedTokens added;                      ///< without those that only other files name
};

}  // namespace headrace::text
