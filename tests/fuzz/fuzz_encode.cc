// Bytes, with U+FFFD for what isn't UTF-8, as a text for one of some small tokenizers, which the
// first byte picks: with and without ranges, with words that were seen and without, the ids are the
// same; ranges lie in the text, in order; and the bytes of byte-level ids are those of the text.

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/fuzz_target.h"
#include "text/decode/token_decoder.h"
#include "text/encode/pipeline.h"
#include "text/files/pre_names.h"
#include "text/files/tokenizer_tables.h"
#include "text/unicode/utf8.h"

namespace {

using namespace headrace::text;
using headrace::InternalError;
using Kind = TokenizerTables::Kind;

constexpr std::array kPieces = {"▁",   "a",  "b",    "ab",  "aa",   "aaa", "aaaa", "▁a",   "▁ab",
                                "c",   "bc", "abc",  "é",   "你",   "好",  "你好", "▁你",  "1",
                                "12",  "e",  "re",   "▁re", ".",    "\n",  "▁▁",   "▁▁▁▁", "ba",
                                "bab", "cc", "cccc", "é你", "abab", "the", "h",    "t",    "th"};
constexpr std::array kWords = {"[UNK]", "[CLS]", "a",  "ab", "##b", "##ab", "the",
                               "##e",   "re",    "##", ".",  "1",   "##1",  "e"};

TokenizerTables byte_tables(const char* pre) {
  TokenizerTables tables;
  if (pre != nullptr) set_pre(pre, &tables);
  tables.kind = Kind::kByteBpe;
  tables.nfc = false;  // so that the text comes back
  tables.vocabulary = std::make_shared<Vocabulary>(true);
  for (int byte = 0; byte < 256; ++byte) {
    const char value = static_cast<char>(byte);
    tables.vocabulary->append_bytes(byte, std::string_view(&value, 1));
  }
  for (const char* token : {"  ", "    ", " a", "ab", "the", "th", " the", "aa", "aaaa", "\n\n",
                            "\xE4\xBD", "\xE4\xBD\xA0", "re", "'re", "12", "abab", "\xC3\xA9"}) {
    tables.vocabulary->append_bytes(tables.vocabulary->end(), token);
  }
  tables.vocabulary->index();
  return tables;
}

/// Pieces of a sentencepiece model. scored: some have one score, and some are unused or found
/// before all others, so that no list of merges can stand for them.
TokenizerTables piece_tables(Kind kind, bool scored) {
  TokenizerTables tables;
  tables.kind = kind;
  tables.unknown_id = 0;
  tables.byte_fallback = !scored;
  tables.spaces.remove_extra_whitespaces = scored;
  tables.vocabulary = std::make_shared<Vocabulary>(false);
  Vocabulary& vocabulary = *tables.vocabulary;
  vocabulary.append(0, "<unk>", TokenKind::kUnknown);
  vocabulary.append(1, "<s>", TokenKind::kControl);
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  for (size_t byte = 0; byte < 256 && !scored; ++byte) {
    const std::string piece = {'<', '0', 'x', kDigits[byte / 16], kDigits[byte % 16], '>'};
    vocabulary.append(vocabulary.end(), piece, TokenKind::kByte);
  }
  tables.scores.resize(static_cast<size_t>(vocabulary.end()));
  for (size_t i = 0; i < kPieces.size(); ++i) {
    const TokenKind special = i % 2 == 0 ? TokenKind::kUnused : TokenKind::kUserDefined;
    vocabulary.append(vocabulary.end(), kPieces[i],
                      scored && i % 5 == 4 ? special : TokenKind::kNormal);
    tables.scores.push_back(-static_cast<float>(scored ? i * 7 % 11 : i * 7 % kPieces.size()));
  }
  vocabulary.index();
  return tables;
}

TokenizerTables word_tables() {
  TokenizerTables tables;
  tables.kind = Kind::kWordPiece;
  tables.unknown_id = 0;
  tables.vocabulary = std::make_shared<Vocabulary>(false);
  for (const char* token : kWords) tables.vocabulary->add(tables.vocabulary->end(), token);
  return tables;
}

struct Fixed {
  Fixed(TokenizerTables tables, std::string_view special)
      : byte_level(tables.kind == Kind::kByteBpe) {
    AddedToken token;
    token.content = special;
    token.id = tables.vocabulary->end();
    tables.vocabulary->add(token.id, special, TokenKind::kControl);
    if (!tables.scores.empty()) tables.scores.push_back(0);
    tables.added.push_back(std::move(token));
    TokenizerParts parts = make_parts(std::move(tables));
    if (byte_level) {
      const AddedText added{.id = parts.vocabulary->end() - 1,
                            .content = std::string(special),
                            .decoded = std::string(special)};
      decoder = std::make_unique<const TokenDecoder>(*parts.vocabulary, std::span(&added, 1),
                                                     make_decoder(parts.decoder));
    }
    pipeline = std::make_unique<const Pipeline>(std::move(parts), SequenceEnds());
    used = pipeline->make_scratch();
  }

  bool byte_level;
  std::unique_ptr<const TokenDecoder> decoder;
  std::unique_ptr<const Pipeline> pipeline;
  std::unique_ptr<EncodeScratch> used;   ///< knows the words of all texts before
  std::unique_ptr<EncodeScratch> fresh;  ///< of some of them: making one takes longer than a text
  size_t runs = 0;
};

Fixed& tokenizer(size_t number) {
  static const std::array<std::function<TokenizerTables()>, 7> kTables = {
      [] { return byte_tables("qwen2"); },
      [] { return byte_tables("deepseek-v3"); },
      [] { return byte_tables(nullptr); },
      [] { return piece_tables(Kind::kPieceBpe, false); },
      [] { return piece_tables(Kind::kPieceBpe, true); },
      [] { return piece_tables(Kind::kUnigram, false); },
      word_tables};
  static std::array<std::unique_ptr<Fixed>, kTables.size()> made;
  std::unique_ptr<Fixed>& one = made[number % kTables.size()];
  if (one == nullptr) one = std::make_unique<Fixed>(kTables[number % kTables.size()](), "<|x|>");
  return *one;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return headrace::refuse_or_accept([&] {
    if (size == 0 || size > 4096) return;
    Fixed& fixed = tokenizer(data[0]);
    std::string text;
    append_lossy(headrace::as_text(data + 1, size - 1), &text);
    if (fixed.runs++ % 32 == 0) fixed.fresh = fixed.pipeline->make_scratch();
    std::vector<int32_t> ids;
    std::vector<int32_t> again;
    std::vector<Range> ranges;
    fixed.pipeline->encode(text, false, false, fixed.fresh.get(), &ids, &ranges);
    for (EncodeScratch* scratch : {fixed.used.get(), fixed.fresh.get()}) {
      fixed.pipeline->encode(text, false, false, scratch, &again, nullptr);
      if (ids != again) throw InternalError("two results for a text");
    }
    std::vector<Range> known_ranges;
    fixed.pipeline->encode(text, false, false, fixed.used.get(), &again, &known_ranges);
    if (ids != again || ranges != known_ranges || ids.size() != ranges.size()) {
      throw InternalError("other ranges for words that were seen");
    }
    size_t begin = 0;
    for (const Range& range : ranges) {
      if (range.begin < begin || range.begin > range.end || range.end > text.size()) {
        throw InternalError("a range beyond the text, or before the last one");
      }
      begin = range.begin;
    }
    if (fixed.byte_level && fixed.decoder->decode(ids, false) != text) {
      throw InternalError("the text does not come back");
    }
  });
}
