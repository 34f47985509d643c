#include "text/files/model_json.h"

#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "text/model/unigram.h"
#include "text/model/wordpiece.h"

namespace headrace::text {
namespace {

using Next = json::Scanner::Next;

std::optional<int64_t> read_optional_integer(json::Scanner* scanner) {
  if (scanner->peek() == Next::kNull) {
    scanner->read_null();
    return std::nullopt;
  }
  const json::Scanner::Number number = scanner->read_number();
  if (!number.integral) scanner->fail("expected an integer");
  return number.integer;
}

}  // namespace

void ModelJsonReader::read() {
  std::string buffer;
  std::string_view key;
  std::unordered_set<std::string> seen;
  scanner_.enter_object();
  while (scanner_.next_key(&buffer, &key)) {
    if (!seen.emplace(key).second) scanner_.fail("a key that its object had before");
    read_member(std::string(key));
  }
  build();
}

void ModelJsonReader::read_member(std::string_view key) {
  if (key == "type") {
    type_ = scanner_.read_string(&left_);
  } else if (key == "vocab") {
    if (scanner_.peek() == Next::kList) {
      read_pieces();
    } else {
      read_vocabulary();
    }
  } else if (key == "merges") {
    if (has_vocabulary_) {
      read_merges();
    } else {
      merges_at_ = scanner_.offset();
      scanner_.skip_value();
    }
  } else if (key == "unk_token") {
    unknown_ = read_optional_string();
  } else if (key == "continuing_subword_prefix") {
    prefix_ = read_optional_string();
    if (builder_ != nullptr && !prefix_.value_or("").empty()) {
      throw_error(ErrorCode::kUnsupported, "model: continuing_subword_prefix behind the merges");
    }
  } else if (key == "end_of_word_suffix") {
    suffix_ = read_optional_string();
  } else if (key == "fuse_unk") {
    fuse_unk_ = read_flag();
  } else if (key == "byte_fallback") {
    byte_fallback_ = read_flag();
  } else if (key == "ignore_merges") {
    ignore_merges_ = read_flag();
  } else if (key == "unk_id") {
    unknown_piece_ = read_optional_integer(&scanner_);
  } else if (key == "max_input_chars_per_word") {
    max_characters_ = read_optional_integer(&scanner_);
  } else {  // dropout is for training
    scanner_.skip_value();
  }
}

std::optional<std::string> ModelJsonReader::read_optional_string() {
  if (scanner_.peek() == Next::kNull) {
    scanner_.read_null();
    return std::nullopt;
  }
  return std::string(scanner_.read_string(&left_));
}

bool ModelJsonReader::read_flag() {
  if (scanner_.peek() != Next::kNull) return scanner_.read_bool();
  scanner_.read_null();
  return false;
}

void ModelJsonReader::read_vocabulary() {
  std::string_view token;
  scanner_.enter_object();
  while (scanner_.next_key(&left_, &token)) {
    // The id is read behind the token, whose text holds meanwhile: numbers need no buffer.
    const json::Scanner::Number id = scanner_.read_number();
    if (!id.integral || id.integer < 0 || id.integer > Vocabulary::kMaxId) {
      throw_error(ErrorCode::kCorruptFile, "model: the id of the token \"", token.substr(0, 64),
                  "\" must be in 0..", Vocabulary::kMaxId, " at byte ", scanner_.offset());
    }
    vocabulary_->append(static_cast<int32_t>(id.integer), token);
  }
  vocabulary_->index();
  has_vocabulary_ = true;
}

/// Unigram's: pairs of a piece and its score, in order of id.
void ModelJsonReader::read_pieces() {
  scanner_.enter_list();
  while (scanner_.next_item()) {
    scanner_.enter_list();
    if (!scanner_.next_item()) scanner_.fail("expected a piece");
    vocabulary_->append(vocabulary_->end(), scanner_.read_string(&left_));
    if (!scanner_.next_item()) scanner_.fail("expected a score");
    scores_.push_back(scanner_.read_number().real);
    if (scanner_.next_item()) scanner_.fail("expected the end of a piece");
  }
  vocabulary_->index();
  has_vocabulary_ = has_pieces_ = true;
}

void ModelJsonReader::read_merges() {
  BpeOptions options;
  options.continuing_subword_prefix = prefix_.value_or("");
  builder_ = std::make_unique<BpeBuilder>(vocabulary_, std::move(options));
  scanner_.enter_list();
  bool more = scanner_.next_item();
  if (more) {
    // Nearly always the rest of the file, so that the tables get their size at once.
    const size_t quotes = scanner_.peek() == Next::kList ? 4 : 2;
    builder_->reserve(scanner_.count_ahead('"') / quotes);
  }
  for (; more; more = scanner_.next_item()) read_merge();
}

/// "a b" in older files, ["a", "b"] in newer ones.
void ModelJsonReader::read_merge() {
  if (scanner_.peek() == Next::kList) {
    scanner_.enter_list();
    if (!scanner_.next_item()) scanner_.fail("expected a token");
    const std::string_view left = scanner_.read_string(&left_);
    if (!scanner_.next_item()) scanner_.fail("expected a token");
    const std::string_view right = scanner_.read_string(&right_);
    if (scanner_.next_item()) scanner_.fail("expected the end of a merge");
    builder_->add_merge(left, right);
    return;
  }
  const std::string_view merge = scanner_.read_string(&left_);
  if (merge.starts_with("#version")) return;
  const size_t space = merge.find(' ');
  if (space == std::string_view::npos || merge.find(' ', space + 1) != std::string_view::npos) {
    scanner_.fail("a merge must be two tokens with a space between them");
  }
  builder_->add_merge(merge.substr(0, space), merge.substr(space + 1));
}

int32_t ModelJsonReader::unknown_id() const {
  if (!unknown_) return Vocabulary::kNoId;
  return vocabulary_->find_spelling(*unknown_);
}

void ModelJsonReader::build() {
  if (!has_vocabulary_) throw_error(ErrorCode::kCorruptFile, "model: it has no vocab");
  if (merges_at_) {
    const size_t end = scanner_.offset();
    scanner_.go_to(*merges_at_);
    read_merges();
    scanner_.go_to(end);
  }
  std::string type = type_;
  if (type.empty()) type = builder_ != nullptr ? "BPE" : has_pieces_ ? "Unigram" : "WordPiece";
  if (has_pieces_ != (type == "Unigram")) {
    throw_error(ErrorCode::kCorruptFile, "model: its vocab is not one of a ", type, " model");
  }
  if (type == "BPE") {
    build_bpe();
  } else if (type == "Unigram") {
    build_unigram();
  } else if (type == "WordPiece") {
    build_wordpiece();
  } else {
    throw_error(ErrorCode::kUnsupported, "model: unknown type \"", type,
                "\"; BPE, Unigram and WordPiece are known");
  }
}

void ModelJsonReader::build_bpe() {
  if (builder_ == nullptr) throw_error(ErrorCode::kCorruptFile, "model: it has no merges");
  BpeOptions& options = builder_->options();
  options.ignore_merges = ignore_merges_;
  options.byte_fallback = byte_fallback_;
  options.fuse_unk = fuse_unk_;
  options.unk = unknown_id();
  if (unknown_ && options.unk == Vocabulary::kNoId) {
    throw_error(ErrorCode::kCorruptFile, "model: its vocab lacks its unk_token \"", *unknown_,
                "\"");
  }
  options.end_of_word_suffix = suffix_.value_or("");
  if (byte_fallback_ && (!prefix_.value_or("").empty() || !suffix_.value_or("").empty())) {
    throw_error(ErrorCode::kUnsupported,
                "model: byte_fallback with a prefix or a suffix of subwords is not supported");
  }
  model_ = builder_->build();
}

void ModelJsonReader::build_unigram() {
  UnigramOptions options;
  if (unknown_piece_ && (*unknown_piece_ < 0 || *unknown_piece_ >= vocabulary_->end())) {
    throw_error(ErrorCode::kCorruptFile, "model: its unk_id ", *unknown_piece_,
                " is not in its vocab");
  }
  if (unknown_piece_) options.unknown_id = static_cast<int32_t>(*unknown_piece_);
  options.byte_fallback = byte_fallback_;
  model_ = std::make_unique<Unigram>(vocabulary_, std::move(scores_), options);
}

void ModelJsonReader::build_wordpiece() {
  WordPieceOptions options;
  if (unknown_) options.unknown = *unknown_;
  if (prefix_) options.prefix = *prefix_;
  if (max_characters_) {
    if (*max_characters_ < 0) {
      throw_error(ErrorCode::kCorruptFile, "model: max_input_chars_per_word must not be negative");
    }
    options.max_characters = static_cast<size_t>(*max_characters_);
  }
  model_ = std::make_unique<WordPiece>(vocabulary_, options);
}

}  // namespace headrace::text
