#include "grammar/automaton/vocabulary.h"

#include <utility>

namespace headrace::grammar {

Vocabulary::Vocabulary(const VocabularyBytes& vocabulary)
    : tokens_((spell(vocabulary), spellings())), first_tokens_(first_spellings()) {}

void Vocabulary::spell(const VocabularyBytes& vocabulary) {
  std::vector<bool> special(vocabulary.tokens.size());
  for (const auto& [token, name] : vocabulary.special_tokens) {
    special[static_cast<size_t>(token)] = true;
  }
  size_t size = 0;
  for (const std::string& bytes : vocabulary.tokens) size += bytes.size();
  all_bytes_.reserve(size);
  begins_.reserve(vocabulary.tokens.size() + 1);
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    begins_.push_back(static_cast<uint32_t>(all_bytes_.size()));
    if (!special[i]) all_bytes_ += vocabulary.tokens[i];
  }
  begins_.push_back(static_cast<uint32_t>(all_bytes_.size()));
  for (const auto& [token, bytes] : vocabulary.first_tokens) {
    if (!special[static_cast<size_t>(token)]) first_forms_[token] = bytes;
  }
}

std::vector<std::pair<std::string_view, int32_t>> Vocabulary::spellings() const {
  std::vector<std::pair<std::string_view, int32_t>> out;
  out.reserve(size());
  for (size_t i = 0; i < size(); ++i) {
    const auto token = static_cast<int32_t>(i);
    if (begins_[i] != begins_[i + 1]) out.emplace_back(bytes(token, false), token);
  }
  return out;
}

std::vector<std::pair<std::string_view, int32_t>> Vocabulary::first_spellings() const {
  std::vector<std::pair<std::string_view, int32_t>> out;
  out.reserve(first_forms_.size());
  for (const auto& [token, form] : first_forms_) out.emplace_back(form, token);
  return out;
}

std::string_view Vocabulary::bytes(int32_t token, bool at_start) const {
  if (at_start) {
    if (const auto found = first_forms_.find(token); found != first_forms_.end()) {
      return found->second;
    }
  }
  const auto id = static_cast<size_t>(token);
  return std::string_view(all_bytes_).substr(begins_[id], begins_[id + 1] - begins_[id]);
}

}  // namespace headrace::grammar
