#include "text/model/bpe_builder.h"

#include <utility>

#include "base/check.h"
#include "text/model/bpe.h"
#include "text/unicode/utf8.h"
#include "text/vocab/byte_alphabet.h"

namespace headrace::text {
namespace {

char32_t first_char(std::string_view text) {
  size_t at = 0;
  return next_char(text, &at);
}

char32_t last_char(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return next_char(text, &at);
}

}  // namespace

BpeBuilder::BpeBuilder(std::shared_ptr<const Vocabulary> vocabulary, BpeOptions options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {
  if (!vocabulary_->byte_level()) junctions_ = std::make_unique<Junctions>();
}

uint32_t BpeBuilder::next_rank() {
  const auto rank = static_cast<uint32_t>(merged_.size());
  merged_.push_back(Vocabulary::kNoId);
  if (rank >= PairTable::kNoRank) {
    throw_error(ErrorCode::kLimitExceeded, "more than ", PairTable::kNoRank, " merges");
  }
  return rank;
}

void BpeBuilder::fail_missing(std::string_view left, std::string_view right) const {
  throw_error(ErrorCode::kCorruptFile, "the merge of \"", left, "\" and \"", right,
              "\" has a token that the vocabulary lacks");
}

void BpeBuilder::add_merge(std::string_view left, std::string_view right) {
  Spelled spelled;
  spelled.rank = next_rank();
  spelled.begin = static_cast<uint32_t>(text_.size());
  if (left.empty() || right.empty()) fail_missing(left, right);
  if (!vocabulary_->byte_level()) {
    text_.append(left);
    spelled.middle = static_cast<uint32_t>(text_.size());
    text_.append(right);
  } else {
    const bool inside = append_alphabet_bytes(left, &text_);
    spelled.middle = static_cast<uint32_t>(text_.size());
    if (!inside || !append_alphabet_bytes(right, &text_)) {
      text_.resize(spelled.begin);
      add_spelled_outside(left, right);
      return;
    }
  }
  spelled.end = static_cast<uint32_t>(text_.size());
  const std::string_view text(text_);
  spelled.left = Vocabulary::key_of(text.substr(spelled.begin, spelled.middle - spelled.begin));
  spelled.right = Vocabulary::key_of(text.substr(spelled.middle));
  vocabulary_->prefetch(spelled.left);
  vocabulary_->prefetch(spelled.right);
  spelled_.push_back(spelled);
  if (spelled_.size() == kGroup) flush_spelled();
}

/// A merge of a byte-level vocabulary whose spelling isn't of the alphabet. No word has it.
void BpeBuilder::add_spelled_outside(std::string_view left, std::string_view right) {
  Merge merge;
  merge.rank = static_cast<uint32_t>(merged_.size() - 1);
  merge.left = vocabulary_->find_spelling(left);
  merge.right = vocabulary_->find_spelling(right);
  merge.id = vocabulary_->find_spelling(std::string(left).append(right));
  if (merge.left < 0 || merge.right < 0 || merge.id < 0) fail_missing(left, right);
  flush_spelled();
  merged_[merge.rank] = merge.id;
  merges_.push_back(merge);
}

int32_t BpeBuilder::merged_id(std::string_view bytes) const {
  // Merges make tokens in the order of ids, nearly always.
  for (const int32_t guess : {last_merged_ + 1, last_merged_}) {
    if (vocabulary_->is(guess, bytes)) return guess;
  }
  return vocabulary_->find(bytes);
}

Merge BpeBuilder::look_up(const Spelled& spelled) {
  const std::string_view both =
      std::string_view(text_).substr(spelled.begin, spelled.end - spelled.begin);
  const std::string_view left = both.substr(0, spelled.middle - spelled.begin);
  const std::string_view right = both.substr(left.size());
  Merge merge;
  merge.rank = spelled.rank;
  merge.left = vocabulary_->find(left, spelled.left);
  merge.right = vocabulary_->find(right, spelled.right);
  const std::string& prefix = options_.continuing_subword_prefix;
  if (prefix.empty()) {
    merge.id = merged_id(both);
    if (junctions_ != nullptr) junctions_->add(last_char(left), first_char(right));
  } else {
    if (!right.starts_with(prefix)) {
      throw_error(ErrorCode::kCorruptFile, "the merge of \"", left, "\" and \"", right,
                  "\" does not carry the continuing_subword_prefix \"", prefix, "\"");
    }
    merge.id = merged_id(std::string(left).append(right.substr(prefix.size())));
  }
  if (merge.left < 0 || merge.right < 0 || merge.id < 0) fail_missing(left, right);
  last_merged_ = merge.id;
  return merge;
}

void BpeBuilder::flush_spelled() {
  for (const Spelled& spelled : spelled_) {
    merges_.push_back(look_up(spelled));
    merged_[spelled.rank] = merges_.back().id;
  }
  spelled_.clear();
  text_.clear();
  flush_merges();
}

void BpeBuilder::flush_merges() {
  pairs_.insert(merges_);
  merges_.clear();
}

void BpeBuilder::add_merge(const Merge& merge) {
  if (merge.rank >= PairTable::kNoRank) {
    throw_error(ErrorCode::kLimitExceeded, "a merge of rank ", merge.rank, ", more than the ",
                PairTable::kNoRank - 1, " allowed");
  }
  if (merge.rank >= merged_.size()) merged_.resize(merge.rank + 1, Vocabulary::kNoId);
  int32_t& id = merged_[merge.rank];
  if (id != Vocabulary::kNoId && id != merge.id) {
    throw_error(ErrorCode::kCorruptFile, "the rank ", merge.rank, " is given to two tokens");
  }
  id = merge.id;
  if (junctions_ != nullptr) {
    const std::string_view left = vocabulary_->bytes(merge.left);
    const std::string_view right = vocabulary_->bytes(merge.right);
    if (left.empty() || right.empty()) fail_missing(left, right);
    junctions_->add(last_char(left), first_char(right));
  }
  merges_.push_back(merge);
  if (merges_.size() == kGroup) flush_merges();
}

void BpeBuilder::add_splits_of(int32_t id, uint32_t rank) {
  const std::string_view bytes = vocabulary_->bytes(id);
  for (size_t cut = 1; cut < bytes.size(); ++cut) {
    if (!vocabulary_->byte_level() && (static_cast<uint8_t>(bytes[cut]) & 0xC0) == 0x80) continue;
    const int32_t left = vocabulary_->find(bytes.substr(0, cut));
    if (left < 0) continue;
    const int32_t right = vocabulary_->find(bytes.substr(cut));
    if (right >= 0) add_merge(Merge{left, right, rank, id});
  }
}

std::unique_ptr<const Model> BpeBuilder::build() {
  flush_spelled();
  merged_.shrink_to_fit();
  return std::make_unique<Bpe>(std::move(vocabulary_), std::move(options_), std::move(pairs_),
                               std::move(merged_), std::move(junctions_));
}

}  // namespace headrace::text
