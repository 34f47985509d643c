#include "text/files/sentencepiece/isolating_model.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "text/unicode/utf8.h"

namespace headrace::text {

namespace {

constexpr size_t kIsolatingStepsOfFuel = 8;

}  // namespace

void IsolatingModel::encode(std::string_view word, bool ranges, ModelScratch* scratch, Fuel* fuel,
                            std::vector<Token>* tokens) const {
  size_t begin = 0;
  for (size_t at = 0; at < word.size();) {
    size_t steps = 0;
    const auto match = pieces_.longest(word.substr(at), &steps);
    fuel->spend(1 + steps / kIsolatingStepsOfFuel);
    if (match.size == 0) {
      at += std::min(utf8_size(word[at]), word.size() - at);
      continue;
    }
    const Range piece{static_cast<uint32_t>(at), static_cast<uint32_t>(at + match.size)};
    encode_inner(word, {static_cast<uint32_t>(begin), piece.begin}, ranges, scratch, fuel, tokens);
    tokens->push_back({match.id, piece});
    at = begin = piece.end;
  }
  encode_inner(word, {static_cast<uint32_t>(begin), static_cast<uint32_t>(word.size())}, ranges,
               scratch, fuel, tokens);
}

void IsolatingModel::encode_inner(std::string_view word, Range part, bool ranges,
                                  ModelScratch* scratch, Fuel* fuel,
                                  std::vector<Token>* tokens) const {
  if (part.begin == part.end) {
    return;
  }
  const size_t before = tokens->size();
  inner_->encode(word.substr(part.begin, part.end - part.begin), ranges, scratch, fuel, tokens);
  for (size_t i = before; ranges && i < tokens->size(); ++i) {
    (*tokens)[i].bytes.begin += part.begin;
    (*tokens)[i].bytes.end += part.begin;
  }
}

}  // namespace headrace::text
