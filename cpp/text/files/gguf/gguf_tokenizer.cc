#include "text/files/gguf/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "gguf/in_marks.h"
#include "headrace/status.h"
#include "text/files/file.h"
#include "text/files/gguf/gguf_specials.h"
#include "text/files/pre_names.h"
#include "text/model/byte_pieces.h"
#include "text/unicode/utf8.h"

namespace headrace::text {

namespace {

using Kind = TokenizerTables::Kind;

constexpr std::string_view kModel = "tokenizer.ggml.model";
constexpr std::string_view kPre = "tokenizer.ggml.pre";
constexpr std::string_view kScores = "tokenizer.ggml.scores";
constexpr std::string_view kMerges = "tokenizer.ggml.merges";
constexpr std::string_view kCharsmap = "tokenizer.ggml.precompiled_charsmap";
constexpr std::string_view kSpaceMark = "\u2581";

/// What holds where a file doesn't say.
struct ModelRules {
  std::string_view name;
  Kind kind;
  bool has_scores = false, has_merges = false;
  bool add_bos = false, add_eos = false, add_space = false;
  int32_t bos_id = Vocabulary::kNoId, eos_id = Vocabulary::kNoId, unknown_id = Vocabulary::kNoId;
};

constexpr std::array kModels = {
    ModelRules{.name = "gpt2", .kind = Kind::kByteBpe, .has_merges = true},
    ModelRules{.name = "llama",
               .kind = Kind::kPieceBpe,
               .has_scores = true,
               .add_bos = true,
               .add_space = true,
               .bos_id = 1,
               .eos_id = 2,
               .unknown_id = 0},
    ModelRules{.name = "gemma4", .kind = Kind::kPieceBpe, .has_merges = true},
    ModelRules{.name = "t5",
               .kind = Kind::kUnigram,
               .has_scores = true,
               .add_eos = true,
               .add_space = true,
               .eos_id = 1,
               .unknown_id = 2},
    ModelRules{.name = "bert", .kind = Kind::kWordPiece, .add_bos = true, .add_eos = true},
};

/// Of gpt2: those that begin texts with bos unless the file says otherwise.
constexpr std::array<std::string_view, 7> kPresWithBos = {
    "llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "lfm2", "tekken"};

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string made;
  for (size_t at = 0; at < text.size();) {
    const bool found = text.substr(at).starts_with(from);
    if (found) {
      made += to;
    } else {
      made += text[at];
    }
    at += found ? from.size() : 1;
  }
  return made;
}

const ModelRules& rules_of(const GgufHeader& header) {
  const std::string name = header.text(kModel, "none");
  std::string known;
  for (const ModelRules& rules : kModels) {
    if (rules.name == name) return rules;
    known += str_cat(known.empty() ? "" : ", ", rules.name);
  }
  throw_error(ErrorCode::kUnsupported, header.origin, ": ", kModel, " is ", in_marks(name),
              "; known are ", known, ".");
}

class GgufTokenizerReader {
 public:
  explicit GgufTokenizerReader(const GgufHeader& header)
      : header_(header),
        rules_(rules_of(header)),
        tokens_(gguf_tokens(header)),
        types_(gguf_token_types(header, tokens_.size())) {}

  TokenizerTables read() {
    tables_.kind = rules_.kind;
    tables_.vocabulary = std::make_shared<Vocabulary>(rules_.kind == Kind::kByteBpe);
    if (rules_.kind == Kind::kByteBpe) {
      naming_file(header_.origin, [&] { set_pre(header_.text(kPre, "default"), &tables_); });
    }
    read_specials();
    naming_file(header_.origin, [&] { read_tokens(); });
    if (is_pieces()) {
      read_spaces();
      check_bytes();
      read_scores();
    }
    if (rules_.has_merges) read_merges();
    if (rules_.kind == Kind::kUnigram) read_charsmap();
    if (rules_.kind == Kind::kWordPiece) tables_.lowercase = !has_capitals();
    return std::move(tables_);
  }

 private:
  bool is_pieces() const { return rules_.kind == Kind::kPieceBpe || rules_.kind == Kind::kUnigram; }

  int32_t id_of(std::string_view role, int32_t otherwise) const {
    const int32_t id = gguf_special_id(header_, role, tokens_.size());
    if (id != Vocabulary::kNoId) return id;
    return otherwise < static_cast<int32_t>(tokens_.size()) ? otherwise : Vocabulary::kNoId;
  }

  int32_t find(std::string_view text) const {
    const auto found = std::ranges::find(tokens_, text);
    return found == tokens_.end() ? Vocabulary::kNoId
                                  : static_cast<int32_t>(found - tokens_.begin());
  }

  /// All ids are checked, also those that encoding doesn't need.
  void read_specials() {
    for (const char* role : {"eot", "eom", "padding", "mask", "fim_pre", "fim_suf", "fim_mid",
                             "fim_pad", "fim_rep", "fim_sep"}) {
      id_of(role, Vocabulary::kNoId);
    }
    const bool words = rules_.kind == Kind::kWordPiece;
    const int32_t bos = id_of("bos", words ? id_of("cls", find("[CLS]")) : rules_.bos_id);
    const int32_t eos = id_of("eos", rules_.eos_id);
    const int32_t separator = id_of("separator", find("[SEP]"));
    const int32_t unknown = id_of("unknown", words ? find("[UNK]") : rules_.unknown_id);
    // Byte-level tokenizers drop bytes that have no token, whatever token is named.
    if (rules_.kind != Kind::kByteBpe) tables_.unknown_id = unknown;
    const bool pre_has_bos = rules_.kind == Kind::kByteBpe &&
                             std::ranges::count(kPresWithBos, header_.text(kPre, "")) > 0;
    tables_.bos_id = end_id("tokenizer.ggml.add_bos_token", rules_.add_bos || pre_has_bos, bos);
    tables_.eos_id = words ? end_id("tokenizer.ggml.add_sep_token", rules_.add_eos, separator)
                           : end_id("tokenizer.ggml.add_eos_token", rules_.add_eos, eos);
  }

  /// Of a token that is put at an end of texts if the flag says so.
  int32_t end_id(const char* key, bool otherwise, int32_t id) const {
    if (!header_.boolean(key, otherwise)) return Vocabulary::kNoId;
    const bool there = id != Vocabulary::kNoId && is_token(static_cast<size_t>(id));
    if (header_.find(key) != nullptr && !there) {
      header_.fail(key, "is true, but the file names no such token");
    }
    return there ? id : Vocabulary::kNoId;
  }

  /// Ids without a token are filled with [PADi].
  bool is_token(size_t id) const {
    return !tokens_[id].empty() &&
           !(types_[id] == GgufTokenType::kUnused && tokens_[id] == str_cat("[PAD", id, "]"));
  }

  void read_tokens() {
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (!is_token(i)) continue;
      const auto id = static_cast<int32_t>(i);
      tables_.vocabulary->append(id, spelling_of(i), kind_of(i));
      const bool special = types_[i] == GgufTokenType::kControl;
      if (!special && types_[i] != GgufTokenType::kUserDefined) continue;
      AddedToken token;
      token.content = tokens_[i];
      token.id = id;
      token.special = special;
      tables_.added.push_back(std::move(token));
    }
    tables_.vocabulary->index();
  }

  /// WordPiece has U+2581 in front of words instead of ## in front of the rest.
  std::string spelling_of(size_t id) const {
    const std::string_view token = tokens_[id];
    const bool marked = rules_.kind == Kind::kWordPiece && types_[id] != GgufTokenType::kControl &&
                        types_[id] != GgufTokenType::kUserDefined &&
                        !(token.starts_with('[') && token.ends_with(']'));
    if (!marked) return std::string(token);
    if (token.starts_with(kSpaceMark)) return std::string(token.substr(kSpaceMark.size()));
    return str_cat("##", token);
  }

  TokenKind kind_of(size_t id) const {
    if (is_pieces() && static_cast<int32_t>(id) == tables_.unknown_id) return TokenKind::kUnknown;
    switch (types_[id]) {
      case GgufTokenType::kNormal:
        return TokenKind::kNormal;
      case GgufTokenType::kUnknown:
        return TokenKind::kUnknown;
      case GgufTokenType::kControl:
        return TokenKind::kControl;
      case GgufTokenType::kUserDefined:
        return TokenKind::kUserDefined;
      case GgufTokenType::kUnused:
        return TokenKind::kUnused;
      case GgufTokenType::kByte:
        return TokenKind::kByte;
    }
    return TokenKind::kNormal;
  }

  void read_spaces() {
    tables_.spaces.add_dummy_prefix =
        header_.boolean("tokenizer.ggml.add_space_prefix", rules_.add_space);
    tables_.spaces.remove_extra_whitespaces =
        header_.boolean("tokenizer.ggml.remove_extra_whitespaces", false);
  }

  /// Characters without a token become bytes only if all bytes are there.
  void check_bytes() {
    const auto typed = std::ranges::count(types_, GgufTokenType::kByte);
    if (typed == 0) return;
    const std::array<int32_t, 256> ids = byte_piece_ids(*tables_.vocabulary);
    const auto missing = std::ranges::count(ids, Vocabulary::kNoId);
    if (missing > 0 || typed != static_cast<int64_t>(ids.size())) {
      header_.fail(kGgufTokens,
                   str_cat("has ", typed, " tokens of bytes, and ",
                           ids.size() - static_cast<size_t>(missing),
                           " of \"<0x00>\" to \"<0xFF>\": all 256 must be there, or none"));
    }
    tables_.byte_fallback = true;
  }

  void read_scores() {
    tables_.scores.assign(static_cast<size_t>(tables_.vocabulary->end()), 0.0F);
    if (!rules_.has_scores) return;
    const GgufValue* value = header_.find(kScores);
    if (value == nullptr) header_.fail(kScores, "is missing");
    if (value->count() != tokens_.size()) {
      header_.fail(kScores,
                   str_cat("has ", value->count(), " entries for ", tokens_.size(), " tokens"));
    }
    const std::optional<std::vector<double>> scores = value->numbers();
    if (!scores) header_.fail(kScores, "is not a list of numbers");
    for (size_t id = 0; id < tables_.scores.size(); ++id) {
      tables_.scores[id] = static_cast<float>((*scores)[id]);
    }
  }

  void read_merges() {
    const GgufValue* value = header_.find(kMerges);
    if (value == nullptr || value->count() == 0) header_.fail(kMerges, "is missing, or empty");
    const std::optional<std::vector<std::string_view>> merges = value->texts();
    if (!merges) header_.fail(kMerges, "is not a list of texts");
    tables_.merges.reserve(merges->size());
    for (const std::string_view merge : *merges) {
      // The first part may begin with a space.
      const size_t space = merge.find(' ', 1);
      if (space == merge.npos || space + 1 == merge.size() || invalid_utf8_at(merge) != kValid) {
        header_.fail(kMerges, str_cat("has ", in_marks(merge), ", which is not two tokens"));
      }
      std::string left(merge.substr(0, space));
      std::string right(merge.substr(space + 1));
      if (rules_.kind == Kind::kPieceBpe) {
        unescape(&left);
        unescape(&right);
        if (is_of_spaces(left, right)) continue;
      }
      tables_.merges.emplace_back(std::move(left), std::move(right));
    }
  }

  /// Spaces inside of pieces are written as byte-level vocabularies have them.
  void unescape(std::string* part) const {
    if (tables_.vocabulary->find(*part) != Vocabulary::kNoId) return;
    *part = replaced(*part, "\u0120", " ");
  }

  /// Runs of spaces are user-defined tokens, which files have as spaces: no merge sees them.
  bool is_of_spaces(const std::string& left, const std::string& right) const {
    const Vocabulary& vocabulary = *tables_.vocabulary;
    return std::ranges::any_of(std::array{left, right, left + right}, [&](const std::string& part) {
      return vocabulary.find(part) == Vocabulary::kNoId &&
             vocabulary.find(replaced(part, kSpaceMark, " ")) != Vocabulary::kNoId;
    });
  }

  void read_charsmap() {
    const GgufValue* value = header_.find(kCharsmap);
    if (value == nullptr) return;
    const std::optional<std::vector<int64_t>> bytes = value->integers();
    if (!bytes || gguf_type_size(value->type()) != 1) header_.fail(kCharsmap, "is not bytes");
    for (const int64_t byte : *bytes) tables_.charsmap += static_cast<char>(byte);
  }

  bool has_capitals() const {
    for (size_t id = 0; id < tokens_.size(); ++id) {
      const bool capital =
          std::ranges::any_of(tokens_[id], [](char c) { return c >= 'A' && c <= 'Z'; });
      if (capital && types_[id] == GgufTokenType::kNormal && !tokens_[id].starts_with('[')) {
        return true;
      }
    }
    return false;
  }

  const GgufHeader& header_;
  const ModelRules& rules_;
  const std::vector<std::string_view> tokens_;
  const std::vector<GgufTokenType> types_;
  TokenizerTables tables_;
};

}  // namespace

TokenizerTables read_gguf_tokenizer(const GgufHeader& header) {
  return GgufTokenizerReader(header).read();
}

}  // namespace headrace::text
