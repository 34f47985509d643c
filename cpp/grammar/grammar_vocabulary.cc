#include "grammar/grammar_vocabulary.h"

#include <array>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/headroom.h"
#include "grammar/check_vocabulary.h"

namespace headrace::internal {

namespace {

constexpr char kSpecialMark = '\xff';  // begins the names of special tokens; UTF-8 doesn't have it
const std::string kEndName = std::string(1, kSpecialMark) + "<|headrace_end_of_text|>";

// llguidance ends the process when it gets no memory; this is several times what it was seen to
// take for its tree of the spellings.
void check_room(const std::vector<std::string>& spellings) {
  size_t bytes = size_t{64} << 20;
  for (const std::string& spelling : spellings) bytes += 256 + 32 * spelling.size();
  if (!has_headroom(bytes)) {
    throw_error(ErrorCode::kOutOfMemory, "no memory to prepare a vocabulary of ", spellings.size(),
                " ids for grammars: it may take ", bytes >> 20, " MiB.");
  }
}

}  // namespace

GrammarVocabulary::GrammarVocabulary(std::shared_ptr<const Llguidance> api,
                                     const VocabularyBytes& vocabulary)
    : api_(std::move(api)),
      size_(check_vocabulary(vocabulary)),
      special_restarts_(vocabulary.special_restarts),
      is_special_(vocabulary.tokens.size()) {
  std::vector<std::string> spellings = spell(vocabulary);
  spellings.push_back(kEndName);
  add_first_forms(vocabulary, spellings);
  check_room(spellings);
  make_tokenizer(spellings);
}

GrammarVocabulary::~GrammarVocabulary() { api_->free_tokenizer(tokenizer_); }

std::vector<std::string> GrammarVocabulary::spell(const VocabularyBytes& vocabulary) {
  std::vector<std::string> out;
  out.reserve(vocabulary.tokens.size() + 1);
  for (const std::string& bytes : vocabulary.tokens) out.push_back(is_text(bytes) ? bytes : "");
  for (const auto& [token, name] : vocabulary.special_tokens) {
    is_special_[static_cast<size_t>(token)] = true;
    out[static_cast<size_t>(token)] = name.empty() ? "" : kSpecialMark + name;
  }
  return out;
}

void GrammarVocabulary::add_first_forms(const VocabularyBytes& vocabulary,
                                        std::vector<std::string>& spellings) {
  if (vocabulary.first_tokens.empty()) return;
  std::unordered_map<std::string, int32_t> ids;
  for (int32_t token = 0; token < size_; ++token) {
    if (!is_special(token)) ids.emplace(spellings[static_cast<size_t>(token)], token);
  }
  ids[""] = kNothing;
  for (const auto& [token, bytes] : vocabulary.first_tokens) {
    if (is_special(token)) continue;
    if (!is_text(bytes)) {
      first_forms_[token] = kNever;
      continue;
    }
    const auto [place, is_new] = ids.emplace(bytes, static_cast<int32_t>(spellings.size()));
    if (is_new) spellings.push_back(bytes);
    first_forms_[token] = place->second;
  }
}

void GrammarVocabulary::make_tokenizer(const std::vector<std::string>& spellings) {
  std::vector<uint32_t> lengths;
  lengths.reserve(spellings.size());
  std::string bytes;
  for (const std::string& spelling : spellings) {
    lengths.push_back(static_cast<uint32_t>(spelling.size()));
    bytes += spelling;
  }
  LlgTokenizerInit init;
  init.vocab_size = static_cast<uint32_t>(spellings.size());
  init.tok_eos = static_cast<uint32_t>(size_);
  init.token_lens = lengths.data();
  init.token_bytes = reinterpret_cast<const uint8_t*>(bytes.data());
  std::array<char, 512> error{};
  tokenizer_ = api_->new_tokenizer(&init, error.data(), error.size() - 1);
  if (tokenizer_ == nullptr) {
    throw_error(ErrorCode::kInvalidArgument, "llguidance refuses the vocabulary: ", error.data());
  }
}

}  // namespace headrace::internal
