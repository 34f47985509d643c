#pragma once

// The `model` of a tokenizer.json, read in one pass: it is nearly all of the file.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/json/scanner.h"
#include "text/model/bpe_builder.h"
#include "text/model/model.h"
#include "text/vocab/vocabulary.h"

namespace headrace::text {

class ModelJsonReader {
 public:
  /// byte_level: words are bytes, which the vocabulary spells in the byte-level alphabet.
  ModelJsonReader(json::Scanner* scanner, bool byte_level)
      : scanner_(*scanner), vocabulary_(std::make_shared<Vocabulary>(byte_level)) {}

  /// REQUIRES: the scanner stands in front of the model.
  void read();
  std::shared_ptr<const Vocabulary> vocabulary() const { return vocabulary_; }
  /// Takes it.
  std::unique_ptr<const Model> model() { return std::move(model_); }

 private:
  void read_member(std::string_view key);
  void read_vocabulary();
  void read_pieces();
  void read_merges();
  void read_merge();
  std::optional<std::string> read_optional_string();
  bool read_flag();
  int32_t unknown_id() const;
  void build();
  void build_bpe();
  void build_unigram();
  void build_wordpiece();

  json::Scanner& scanner_;
  std::shared_ptr<Vocabulary> vocabulary_;
  std::unique_ptr<const Model> model_;
  std::unique_ptr<BpeBuilder> builder_;
  std::optional<size_t> merges_at_;  ///< not read yet: they came before what they need
  std::string type_;
  bool has_vocabulary_ = false;
  bool has_pieces_ = false;
  std::vector<double> scores_;
  std::optional<std::string> unknown_;
  std::optional<std::string> prefix_;
  std::optional<std::string> suffix_;
  std::optional<int64_t> unknown_piece_;
  std::optional<int64_t> max_characters_;
  bool fuse_unk_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
  std::string left_;
  std::string right_;
};

}  // namespace headrace::text
