#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "headrace/status.h"
#include "text/files/sentencepiece/isolating_model.h"
#include "text/files/sentencepiece/piece_normalizer.h"
#include "text/files/sentencepiece/scored_bpe.h"
#include "text/files/tokenizer_tables.h"
#include "text/json/value.h"
#include "text/json/write.h"
#include "text/model/bpe_builder.h"
#include "text/model/unigram.h"
#include "text/model/wordpiece.h"
#include "text/unicode/utf8.h"

namespace headrace::text {

namespace {

/// Looking for the ways to cut tokens in two takes the square of their lengths.
constexpr uint64_t kMaxSplitWork = uint64_t{1} << 30;

void check_split_work(const Vocabulary& vocabulary) {
  uint64_t work = 0;
  for (int32_t id = 0; id < vocabulary.end(); ++id) {
    if (vocabulary.kind(id) == TokenKind::kNormal) {
      work += uint64_t{vocabulary.bytes(id).size()} * vocabulary.bytes(id).size();
    }
  }
  if (work > kMaxSplitWork) {
    throw Error(ErrorCode::kLimitExceeded,
                "the vocabulary's tokens are too long to make merges of them");
  }
}

bool is_one_character(std::string_view text) {
  return !text.empty() && utf8_size(text[0]) == text.size();
}

/// The ids of pieces that merges make, the highest score first; of equal scores the longest, in
/// which order the leftmost come first if they are runs of one character.
std::vector<int32_t> merged_pieces(const TokenizerTables& tables) {
  const Vocabulary& vocabulary = *tables.vocabulary;
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < vocabulary.end(); ++id) {
    if (vocabulary.kind(id) == TokenKind::kNormal && !is_one_character(vocabulary.bytes(id))) {
      ids.push_back(id);
    }
  }
  std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    const float score_a = tables.scores[static_cast<size_t>(a)];
    const float score_b = tables.scores[static_cast<size_t>(b)];
    const size_t size_a = vocabulary.bytes(a).size();
    const size_t size_b = vocabulary.bytes(b).size();
    return std::tuple(-score_a, size_b, a) < std::tuple(-score_b, size_a, b);
  });
  return ids;
}

/// Of one and the same character?
bool are_runs(std::string_view a, std::string_view b) {
  const std::string_view first = a.substr(0, utf8_size(a[0]));
  const auto is_run = [&](std::string_view text) {
    while (text.starts_with(first)) {
      text.remove_prefix(first.size());
    }
    return text.empty();
  };
  return is_run(a) && is_run(b);
}

/// Do merges of tokens, by rank, do what sentencepiece does with texts, by score? Not if two pieces
/// have one score (the leftmost comes first; but see merged_pieces), if some are unused, or if one
/// has a character that is no piece itself.
bool can_be_merges(const TokenizerTables& tables, const std::vector<int32_t>& merged) {
  const Vocabulary& vocabulary = *tables.vocabulary;
  for (int32_t id = 0; id < vocabulary.end(); ++id) {
    const TokenKind kind = vocabulary.kind(id);
    const bool piece = kind == TokenKind::kNormal || kind == TokenKind::kUserDefined;
    if (kind == TokenKind::kUnused || (!piece && is_one_character(vocabulary.bytes(id)))) {
      return false;
    }
  }
  for (size_t i = 0; i < merged.size(); ++i) {
    const auto score = [&](size_t at) { return tables.scores[static_cast<size_t>(merged[at])]; };
    if (i > 0 && score(i - 1) == score(i) &&
        !are_runs(vocabulary.bytes(merged[i - 1]), vocabulary.bytes(merged[i]))) {
      return false;
    }
    const std::string_view bytes = vocabulary.bytes(merged[i]);
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = utf8_size(bytes[at]);
      if (vocabulary.find(bytes.substr(at, size)) == Vocabulary::kNoId) {
        return false;
      }
      at += size;
    }
  }
  return true;
}

std::unique_ptr<const Model> merge_bpe(const TokenizerTables& tables, const BpeOptions& options) {
  BpeBuilder builder(tables.vocabulary, options);
  builder.reserve(tables.merges.size());
  for (const auto& [left, right] : tables.merges) {
    builder.add_merge(left, right);
  }
  return builder.build();
}

std::unique_ptr<const Model> make_piece_bpe(TokenizerTables* tables) {
  const std::shared_ptr<const Vocabulary> vocabulary = tables->vocabulary;
  BpeOptions options;
  options.byte_fallback = tables->byte_fallback;
  options.fuse_unk = true;
  options.unk = tables->unknown_id;
  if (!tables->merges.empty()) {
    return std::make_unique<IsolatingModel>(*vocabulary, merge_bpe(*tables, options));
  }
  const std::vector<int32_t> merged = merged_pieces(*tables);
  if (!can_be_merges(*tables, merged)) {
    return std::make_unique<ScoredBpe>(vocabulary, std::move(tables->scores),
                                       ScoredBpeOptions{tables->unknown_id, tables->byte_fallback});
  }
  check_split_work(*vocabulary);
  BpeBuilder builder(vocabulary, options);
  for (size_t rank = 0; rank < merged.size(); ++rank) {
    builder.add_splits_of(merged[rank], static_cast<uint32_t>(rank));
  }
  return std::make_unique<IsolatingModel>(*vocabulary, builder.build());
}

std::unique_ptr<const Model> make_byte_bpe(const TokenizerTables& tables) {
  const std::shared_ptr<const Vocabulary> vocabulary = tables.vocabulary;
  BpeOptions options;
  options.ignore_merges = tables.ignore_merges;
  options.unk = tables.unknown_id;
  if (!tables.merges.empty()) {
    return merge_bpe(tables, options);
  }
  BpeBuilder builder(vocabulary, options);
  check_split_work(*vocabulary);
  uint32_t rank = 0;
  for (int32_t id = 0; id < vocabulary->end(); ++id) {
    if (vocabulary->kind(id) == TokenKind::kNormal) {
      builder.add_splits_of(id, rank++);
    }
  }
  return builder.build();
}

/// As a tokenizer.json would have it.
SplitterSpec make_byte_splitter(const TokenizerTables& tables) {
  std::string steps;
  if (tables.digits_first) {
    steps = R"({"type":"Digits","individual_digits":true},)";
  }
  for (const std::string& pattern : tables.split) {
    steps += R"({"type":"Split","behavior":"Isolated","invert":false,"pattern":{"Regex":)" +
             json::quoted(pattern) + "}},";
  }
  return make_splitter(json::parse(
      R"({"type":"Sequence","pretokenizers":[)" + steps +
      R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":false}]})"));
}

void make_word_pieces(TokenizerTables* tables, TokenizerParts* parts) {
  parts->normalizer = make_normalizer(json::parse(
      str_cat(R"({"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,)",
              R"("strip_accents":null,"lowercase":)", tables->lowercase ? "true}" : "false}")));
  parts->splitter = make_splitter(json::parse(R"({"type":"BertPreTokenizer"})"));
  parts->decoder = json::parse(R"({"type":"WordPiece","prefix":"##","cleanup":true})");
  WordPieceOptions options;
  if (tables->unknown_id != Vocabulary::kNoId) {
    options.unknown = tables->vocabulary->spelling(tables->unknown_id);
  }
  parts->model = std::make_unique<WordPiece>(tables->vocabulary, options);
}

/// The template of a text with its first and last token.
json::Value make_ends(const TokenizerTables& tables) {
  if (tables.bos_id == Vocabulary::kNoId && tables.eos_id == Vocabulary::kNoId) {
    return json::Value();
  }
  std::string sequence;
  std::string special;
  const auto add = [&](const char* name, int32_t id) {
    if (id == Vocabulary::kNoId) {
      return;
    }
    sequence += str_cat(R"({"SpecialToken":{"id":")", name, R"(","type_id":0}},)");
    special += str_cat(special.empty() ? "" : ",", '"', name, R"(":{"id":")", name, R"(","ids":[)",
                       id, R"(],"tokens":[)", json::quoted(tables.vocabulary->spelling(id)), "]}");
  };
  add("bos", tables.bos_id);
  sequence += R"({"Sequence":{"id":"A","type_id":0}},)";
  add("eos", tables.eos_id);
  sequence.pop_back();
  return json::parse(str_cat(R"({"type":"TemplateProcessing","single":[)", sequence,
                             R"(],"pair":[)", sequence, R"(],"special_tokens":{)", special, "}}"));
}

void check_scores(const TokenizerTables& tables) {
  if (tables.scores.size() != static_cast<size_t>(tables.vocabulary->end())) {
    throw_error(ErrorCode::kCorruptFile, "a vocabulary of ", tables.vocabulary->end(),
                " tokens has ", tables.scores.size(), " scores");
  }
  for (size_t id = 0; id < tables.scores.size(); ++id) {
    if (!std::isfinite(tables.scores[id])) {
      throw_error(ErrorCode::kCorruptFile, "the score of token ", id, " is no finite number");
    }
  }
}

void make_pieces(TokenizerTables* tables, TokenizerParts* parts) {
  check_scores(*tables);
  const Vocabulary& vocabulary = *tables->vocabulary;
  parts->normalizer =
      std::make_unique<PieceNormalizer>(vocabulary, tables->charsmap, tables->spaces);
  parts->piece_rules = piece_rules(*tables);
  if (tables->kind == TokenizerTables::Kind::kPieceBpe) {
    parts->model = make_piece_bpe(tables);
    return;
  }
  std::vector<double> scores(tables->scores.begin(), tables->scores.end());
  parts->model =
      std::make_unique<Unigram>(tables->vocabulary, std::move(scores),
                                UnigramOptions{UnigramOptions::Rules::kSentencePiece,
                                               tables->unknown_id, tables->byte_fallback});
}

}  // namespace

PieceRules piece_rules(const TokenizerTables& tables) {
  constexpr std::string_view kSpace = "\u2581";
  PieceRules rules;
  rules.drops_every_space = tables.spaces.remove_extra_whitespaces;
  rules.drops_space = tables.spaces.remove_extra_whitespaces || tables.spaces.add_dummy_prefix;
  rules.unknown_text = tables.unknown_text;
  for (int32_t id = 0; id < tables.vocabulary->end(); ++id) {
    const std::string_view piece = tables.vocabulary->bytes(id);
    const TokenKind kind = tables.vocabulary->kind(id);
    if (piece.size() > kSpace.size() && piece.starts_with(kSpace) && kind != TokenKind::kControl &&
        kind != TokenKind::kUnknown) {
      return rules;
    }
  }
  // No piece shows what is done with a space: as ever, one is dropped.
  rules.drops_space = true;
  rules.drops_every_space = false;
  return rules;
}

TokenizerParts make_parts(TokenizerTables tables) {
  TokenizerParts parts;
  parts.vocabulary = tables.vocabulary;
  switch (tables.kind) {
    case TokenizerTables::Kind::kByteBpe:
      if (tables.nfc) {
        parts.normalizer = make_normalizer(json::parse(R"({"type":"NFC"})"));
      }
      parts.decoder = json::parse(R"({"type":"ByteLevel"})");
      parts.splitter = make_byte_splitter(tables);
      parts.model = make_byte_bpe(tables);
      break;
    case TokenizerTables::Kind::kWordPiece:
      make_word_pieces(&tables, &parts);
      break;
    case TokenizerTables::Kind::kPieceBpe:
    case TokenizerTables::Kind::kUnigram:
      make_pieces(&tables, &parts);
      break;
  }
  parts.post_processor = make_ends(tables);
  for (AddedToken& token : tables.added) {
    token.pattern = token.content;
  }
  parts.added.add(tables.added, *tables.vocabulary);
  parts.added.build();
  return parts;
}

}  // namespace headrace::text
