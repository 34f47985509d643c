#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/llguidance.h"
#include "headrace/grammar.h"

namespace headrace::internal {

/// A vocabulary as llguidance sees it: the real ids, then an end-of-text id that no model has
/// (where an output may end is told apart from every real token), then the forms that tokens have
/// at the start of an output and that no other token has.
class GrammarVocabulary {
 public:
  /// Throws Error(kInvalidArgument).
  GrammarVocabulary(std::shared_ptr<const Llguidance> api, const VocabularyBytes& vocabulary);
  ~GrammarVocabulary();
  GrammarVocabulary(const GrammarVocabulary&) = delete;
  GrammarVocabulary& operator=(const GrammarVocabulary&) = delete;

  /// What stands for a token that adds nothing at the start of an output.
  static constexpr int32_t kNothing = -1;
  /// What stands for one that may not come there.
  static constexpr int32_t kNever = -2;

  const Llguidance& api() const noexcept { return *api_; }
  const LlgTokenizer* tokenizer() const noexcept { return tokenizer_; }
  /// Real ids.
  int32_t size() const noexcept { return size_; }
  /// By id: what stands for it at the start of an output.
  const std::unordered_map<int32_t, int32_t>& first_forms() const noexcept { return first_forms_; }
  bool is_special(int32_t token) const noexcept { return is_special_[static_cast<size_t>(token)]; }
  bool special_restarts() const noexcept { return special_restarts_; }

 private:
  std::vector<std::string> spell(const VocabularyBytes& vocabulary);
  void add_first_forms(const VocabularyBytes& vocabulary, std::vector<std::string>& spellings);
  void make_tokenizer(const std::vector<std::string>& spellings);

  const std::shared_ptr<const Llguidance> api_;
  const int32_t size_;
  const bool special_restarts_;
  std::vector<bool> is_special_;
  std::unordered_map<int32_t, int32_t> first_forms_;
  LlgTokenizer* tokenizer_ = nullptr;
};

}  // namespace headrace::internal
