#include "text/model/wordpiece.h"

#include <algorithm>
#include <utility>

#include "headrace/status.h"

namespace headrace::text {

namespace {

constexpr size_t kWordPieceStepsOfFuel = 8;

}  // namespace

WordPiece::WordPiece(std::shared_ptr<const Vocabulary> vocabulary, const WordPieceOptions& options)
    : byte_level_(vocabulary->byte_level()),
      options_(options),
      unknown_id_(vocabulary->find(options.unknown)) {
  std::vector<ByteTrie::Entry> entries;
  entries.reserve(static_cast<size_t>(vocabulary->count()));
  for (int32_t id = 0; id < vocabulary->end(); ++id) {
    if (vocabulary->kind(id) != TokenKind::kNone && !vocabulary->is_spelled(id) &&
        !vocabulary->bytes(id).empty()) {
      entries.push_back({vocabulary->bytes(id), id});
    }
  }
  trie_ = ByteTrie(std::move(entries));
  for (const char byte : options_.prefix) {
    has_inner_ = has_inner_ && trie_.step(&inner_root_, byte);
  }
}

std::unique_ptr<ModelScratch> WordPiece::make_scratch() const {
  return std::make_unique<ModelScratch>();
}

bool WordPiece::too_long(std::string_view word) const noexcept {
  if (word.size() <= options_.max_characters) {
    return false;
  }
  const auto starts_character = [this](char byte) {
    return byte_level_ || (static_cast<uint8_t>(byte) & 0xC0) != 0x80;
  };
  const auto characters = std::count_if(word.begin(), word.end(), starts_character);
  return static_cast<size_t>(characters) > options_.max_characters;
}

void WordPiece::encode(std::string_view word, bool /*ranges: they cost nothing*/,
                       ModelScratch* /*scratch*/, Fuel* fuel, std::vector<Token>* tokens) const {
  const size_t before = tokens->size();
  const bool fits = !too_long(word);
  size_t begin = 0;
  while (fits && begin < word.size() && (begin == 0 || has_inner_)) {
    uint32_t node = begin == 0 ? ByteTrie::kRoot : inner_root_;
    Token longest{ByteTrie::kNoId, {}};
    size_t end = begin;
    while (end < word.size() && trie_.step(&node, word[end])) {
      ++end;
      if (trie_.id_at(node) != ByteTrie::kNoId) {
        longest = {trie_.id_at(node), {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)}};
      }
    }
    fuel->spend(1 + (end - begin) / kWordPieceStepsOfFuel);
    if (longest.id == ByteTrie::kNoId) {
      break;
    }
    tokens->push_back(longest);
    begin = longest.bytes.end;
  }
  if (begin == word.size()) {
    return;
  }
  if (unknown_id_ == Vocabulary::kNoId) {
    throw Error(ErrorCode::kInvalidArgument,
                "the text has a word of no tokens, and the vocabulary lacks the unknown token " +
                    options_.unknown);
  }
  tokens->resize(before);
  tokens->push_back({unknown_id_, {0, static_cast<uint32_t>(word.size())}});
}

}  // namespace headrace::text
