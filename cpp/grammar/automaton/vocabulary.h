#pragma once

// A vocabulary as the own engine walks it.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/automaton/token_trie.h"
#include "headrace/grammar.h"

namespace headrace::grammar {

class Vocabulary {
 public:
  /// Throws Error(kInvalidArgument).
  explicit Vocabulary(const VocabularyBytes& vocabulary);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  size_t size() const { return begins_.size() - 1; }
  /// What a token adds. "" of those that are never allowed.
  std::string_view bytes(int32_t token, bool at_start) const;
  /// All tokens that add something.
  const TokenTrie& tokens() const { return tokens_; }
  /// Those that add something else at the start, as they are there.
  const TokenTrie& first_tokens() const { return first_tokens_; }
  /// By id: what it adds at the start.
  const std::unordered_map<int32_t, std::string>& first_forms() const { return first_forms_; }

 private:
  void spell(const VocabularyBytes& vocabulary);
  std::vector<std::pair<std::string_view, int32_t>> spellings() const;
  std::vector<std::pair<std::string_view, int32_t>> first_spellings() const;

  std::string all_bytes_;
  std::vector<uint32_t> begins_;  // in all_bytes_, by id, and the end
  std::unordered_map<int32_t, std::string> first_forms_;
  TokenTrie tokens_;
  TokenTrie first_tokens_;
};

}  // namespace headrace::grammar
