#pragma once

// sentencepiece's user-defined pieces in front of a model that doesn't know of them.

#include <memory>
#include <string_view>
#include <vector>

#include "text/files/sentencepiece/piece_matcher.h"
#include "text/model/model.h"
#include "text/vocab/vocabulary.h"

namespace headrace::text {

/// The longest user-defined piece at a place is a token; `inner` sees what is between them.
class IsolatingModel final : public Model {
 public:
  IsolatingModel(const Vocabulary& vocabulary, std::unique_ptr<const Model> inner)
      : pieces_(vocabulary), inner_(std::move(inner)) {}

  std::unique_ptr<ModelScratch> make_scratch() const override { return inner_->make_scratch(); }
  void encode(std::string_view word, bool ranges, ModelScratch* scratch, Fuel* fuel,
              std::vector<Token>* tokens) const override;

 private:
  void encode_inner(std::string_view word, Range part, bool ranges, ModelScratch* scratch,
                    Fuel* fuel, std::vector<Token>* tokens) const;

  PieceMatcher pieces_;
  std::unique_ptr<const Model> inner_;
};

}  // namespace headrace::text
