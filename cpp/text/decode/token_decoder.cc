#include "text/decode/token_decoder.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "text/decode/detokenizer.h"

namespace headrace::text {

namespace {

constexpr size_t kMaxBytes = size_t{1} << 30;
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

/// Do decoders get a vocabulary's tokens as they are stored?
bool decodes_stored(const Vocabulary& vocabulary, const Decoder& chain) {
  return vocabulary.byte_level()
             ? chain.alone() > 0 && chain.stages()[0].kind == StageKind::kByteLevel
             : chain.alone() == 0;
}

/// With spaces for the marks that stand for them.
std::string spaced(std::string_view piece) {
  std::string text;
  for (size_t at = 0; at < piece.size();) {
    const bool is_mark = piece.substr(at).starts_with(kSpaceMark);
    text += is_mark ? ' ' : piece[at];
    at += is_mark ? kSpaceMark.size() : 1;
  }
  return text;
}

/// Of several with one id the last.
std::map<int32_t, const AddedText*> by_id(std::span<const AddedText> added) {
  std::map<int32_t, const AddedText*> tokens;
  for (const AddedText& token : added) tokens[token.id] = &token;
  return tokens;
}

}  // namespace

TokenDecoder::TokenDecoder(const Vocabulary& vocabulary, std::span<const AddedText> added,
                           Decoder decoder)
    : rules_(std::move(decoder)) {
  const Decoder& chain = *this->chain();
  entries_.reserve(static_cast<size_t>(vocabulary.end()) + added.size());
  arena_.reserve(vocabulary.text_bytes());
  const bool stored = decodes_stored(vocabulary, chain);
  std::string prepared;
  for (int32_t id = 0; id < vocabulary.end(); ++id) {
    if (vocabulary.kind(id) == TokenKind::kNone) continue;
    if (stored) {
      set(id, vocabulary.bytes(id), kKnown);
      continue;
    }
    vocabulary.spell(id, &prepared);
    chain.prepare(&prepared);
    set(id, prepared, kKnown);
  }
  std::set<std::string_view> specials;
  for (const AddedText& token : added) {
    if (token.special) specials.insert(token.content);
  }
  const std::map<int32_t, const AddedText*> tokens = by_id(added);
  for (const auto& [id, token] : tokens) {
    prepared = token->decoded;
    chain.prepare(&prepared);
    set(id, prepared, kKnown);
    flag(id, kSpecial, token->special);
    if (token->special) names_.emplace_back(id, token->content);
    if (specials.contains(token->decoded)) skip(id, token->decoded);
  }
  // What is special is so by its text, whichever id it has.
  for (const std::string_view text : specials) {
    const int32_t id = vocabulary.find_spelling(text);
    if (id != Vocabulary::kNoId && !tokens.contains(id)) skip(id, std::string(text));
  }
  std::ranges::sort(skipped_);
}

TokenDecoder::TokenDecoder(const Vocabulary& vocabulary, std::span<const AddedText> added,
                           PieceRules rules)
    : rules_(std::move(rules)) {
  for (int32_t id = 0; id < vocabulary.end(); ++id) {
    const TokenKind kind = vocabulary.kind(id);
    if (kind != TokenKind::kNone) {
      set_piece(id, vocabulary.bytes(id), kind, std::get<PieceRules>(rules_));
    }
  }
  for (const auto& [id, token] : by_id(added)) {
    set(id, token->content, kKnown | kCuts | kSpecial);
    names_.emplace_back(id, token->content);
    if (token->special) skip(id, token->content);
  }
}

void TokenDecoder::set(int32_t id, std::string_view bytes, unsigned flags) {
  if (bytes.size() > kMaxTokenBytes || arena_.size() + bytes.size() > kMaxBytes) {
    throw_error(ErrorCode::kLimitExceeded, "the vocabulary's tokens have more than ", kMaxBytes,
                " bytes of text, or one of them more than ", kMaxTokenBytes);
  }
  if (id >= size()) entries_.resize(static_cast<size_t>(id) + 1);
  Entry& entry = entries_[static_cast<size_t>(id)];
  entry.offset = static_cast<uint32_t>(arena_.size());
  entry.size = static_cast<uint32_t>(bytes.size()) & kMaxTokenBytes;
  entry.flags = flags & 0xFF;
  arena_ += bytes;
}

void TokenDecoder::flag(int32_t id, Flag flag, bool on) {
  if (on) entries_[static_cast<size_t>(id)].flags |= flag;
}

void TokenDecoder::skip(int32_t id, const std::string& text) {
  flag(id, kSkipped, true);
  skipped_.emplace_back(id, text);
}

void TokenDecoder::set_piece(int32_t id, std::string_view piece, TokenKind kind,
                             const PieceRules& rules) {
  const int byte = kind == TokenKind::kByte ? byte_of(piece) : -1;
  if (byte >= 0) {
    set(id, std::string(1, static_cast<char>(byte)), kKnown | kByte);
    return;
  }
  if (kind == TokenKind::kUnknown) {
    set(id, rules.unknown_text, kKnown | kUnknown);
    flag(id, kEndsStart, !rules.unknown_text.empty());
    return;
  }
  const std::string text = kind == TokenKind::kControl ? "" : spaced(piece);
  const bool leads = rules.drops_space && !text.empty() && piece.starts_with(kSpaceMark);
  const bool ends_start =
      text.size() > (leads ? 1u : 0u) || (piece == kSpaceMark && !rules.drops_every_space);
  set(id, text, kKnown);
  flag(id, kLeadingSpace, leads);
  flag(id, kEndsStart, ends_start);
}

std::string TokenDecoder::decode(std::span<const int32_t> ids, bool skip_special) const {
  Detokenizer detokenizer(*this, {.skip_special = skip_special, .shown = {}, .after = {}});
  std::string text;
  for (const int32_t id : ids) detokenizer.push(id, &text);
  detokenizer.finish(&text);
  return text;
}

std::string TokenDecoder::token_text(int32_t id) const {
  const Token token = at(id);
  const Decoder* chain = this->chain();
  if (!token.known) return "";
  if (chain == nullptr && !token.is_byte) return std::string(token.bytes);
  if (chain == nullptr || !chain->streams()) return decode({&id, 1}, /*skip_special=*/false);
  ChainRun run(*chain, /*at_start=*/false);
  std::string text;
  run.push(token.bytes, &text);
  run.finish(&text);
  return text;
}

std::optional<std::string> TokenDecoder::part_bytes(int32_t id) const {
  const Token token = at(id);
  const Decoder* chain = this->chain();
  if (!token.known || token.skipped) return std::nullopt;
  if (chain == nullptr) {
    return token.is_byte ? std::optional(std::string(token.bytes)) : std::nullopt;
  }
  if (!chain->streams()) return std::nullopt;
  if (chain->has(StageKind::kUtf8)) return std::string(token.bytes);
  const int byte = chain->has(StageKind::kByteFallback) ? byte_of(token.bytes) : -1;
  return byte < 0 ? std::nullopt : std::optional(std::string(1, static_cast<char>(byte)));
}

}  // namespace headrace::text
