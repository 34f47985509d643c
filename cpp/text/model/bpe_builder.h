#pragma once

// Makes the byte-pair-encoding model from what the different files hold.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/model/junctions.h"
#include "text/model/model.h"
#include "text/model/pair_table.h"
#include "text/vocab/vocabulary.h"

namespace headrace::text {

struct BpeOptions {
  /// A word that is a token is that token, whatever merges would make of it.
  bool ignore_merges = false;
  /// A character without a token becomes its bytes' tokens ("<0x41>"), if all of them exist.
  bool byte_fallback = false;
  /// Neighbours without a token are one unknown token.
  bool fuse_unk = false;
  /// The token of what has none; kNoId: it vanishes.
  int32_t unk = Vocabulary::kNoId;
  std::string continuing_subword_prefix;  ///< of a character that doesn't begin its word
  std::string end_of_word_suffix;         ///< of the last character
};

class BpeBuilder {
 public:
  BpeBuilder(std::shared_ptr<const Vocabulary> vocabulary, BpeOptions options);

  /// For so many merges, or as many as there may be.
  void reserve(size_t merges) {
    merges = std::min<size_t>(merges, PairTable::kNoRank);
    pairs_.reserve(merges);
    merged_.reserve(merges);
  }

  /// The next merge of a list in order of rank, by its tokens as the file spells them. Throws
  /// Error(kCorruptFile), now or at a later call: a token that the vocabulary lacks.
  void add_merge(std::string_view left, std::string_view right);

  /// By ids, with any rank; all merges of one rank make the same token. Don't mix with add_merge.
  /// Throws Error(kCorruptFile), Error(kLimitExceeded).
  void add_merge(const Merge& merge);

  /// All pairs of tokens whose bytes, joined, are those of `id`: tiktoken files, sentencepiece's.
  void add_splits_of(int32_t id, uint32_t rank);

  /// May change until `build`, but for the prefix.
  BpeOptions& options() noexcept { return options_; }

  std::unique_ptr<const Model> build();

 private:
  static constexpr size_t kGroup = 64;
  /// A merge's tokens in `text_`, side by side.
  struct Spelled {
    uint32_t begin = 0;
    uint32_t middle = 0;
    uint32_t end = 0;
    uint32_t rank = 0;
    Vocabulary::Key left;
    Vocabulary::Key right;
  };

  uint32_t next_rank();
  void add_spelled_outside(std::string_view left, std::string_view right);
  void flush_spelled();
  Merge look_up(const Spelled& spelled);
  int32_t merged_id(std::string_view bytes) const;
  void flush_merges();
  [[noreturn]] void fail_missing(std::string_view left, std::string_view right) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  BpeOptions options_;
  PairTable pairs_;
  std::vector<int32_t> merged_;  ///< by rank
  std::unique_ptr<Junctions> junctions_;
  std::string text_;  ///< of the group that is looked up next
  std::vector<Spelled> spelled_;
  std::vector<Merge> merges_;  ///< of the group that is inserted next
  int32_t last_merged_ = Vocabulary::kNoId;
};

}  // namespace headrace::text
