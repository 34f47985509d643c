// The bytes that tokens add to a text, for grammars.

#include <algorithm>
#include <string>
#include <string_view>

#include "base/check.h"
#include "text/decode/chain_run.h"
#include "text/decode/token_decoder.h"

namespace headrace::text {

namespace {

/// In no UTF-8: it can't be told for this token alone, so that a grammar must not begin with it.
constexpr std::string_view kNever = "\xFF";

/// May the first token of an output have another text than later ones?
bool has_start_rule(const Decoder& chain) {
  return std::ranges::any_of(chain.stages(), [](const Stage& stage) {
    return stage.start_rule || stage.kind == StageKind::kWordPiece ||
           stage.kind == StageKind::kSpaces || stage.kind == StageKind::kStripStart;
  });
}

/// Asks a chain what a token adds at a place.
class Speller {
 public:
  explicit Speller(const Decoder& chain)
      : has_bytes_(chain.has(StageKind::kByteFallback)),
        start_(chain),
        later_(chain, /*at_start=*/false),
        run_(chain) {}

  void first(std::string_view token, std::string* text) { spell(start_, token, text); }
  void later(std::string_view token, std::string* text) { spell(later_, token, text); }
  /// Is the same token in second place like any other that isn't first?
  bool ends_start(std::string_view token, std::string_view later) {
    ChainRun behind = start_;
    std::string text;
    behind.push(token, &text);
    text.clear();
    spell(behind, token, &text);
    return text == later;
  }

 private:
  void spell(const ChainRun& from, std::string_view token, std::string* text) {
    const int byte = has_bytes_ ? byte_of(token) : -1;
    if (byte >= 0x80) {
      *text += static_cast<char>(byte);
      return;
    }
    run_ = from;
    run_.push(token, text);
    run_.finish(text);
  }

  bool has_bytes_;
  ChainRun start_;
  ChainRun later_;
  ChainRun run_;
};

}  // namespace

VocabularyBytes TokenDecoder::token_bytes() const {
  if (const auto* rules = std::get_if<PieceRules>(&rules_)) return piece_bytes(*rules);
  const Decoder& chain = *this->chain();
  if (chain.is_byte_level()) return byte_level_bytes();
  if (!chain.streams() || chain.has(StageKind::kUtf8) || chain.has(StageKind::kSuffix)) {
    throw_error(ErrorCode::kUnsupported,
                "guided decoding: this tokenizer's text isn't made token by token; use a model ",
                "whose tokenizer is byte-level or sentencepiece");
  }
  return chain_bytes(chain);
}

VocabularyBytes TokenDecoder::byte_level_bytes() const {
  VocabularyBytes out;
  out.tokens.resize(entries_.size());
  out.special_tokens = names_;
  for (size_t id = 0; id < entries_.size(); ++id) {
    const Token token = token_of(entries_[id]);
    if (!token.special) out.tokens[id] = token.bytes;
  }
  return out;
}

VocabularyBytes TokenDecoder::chain_bytes(const Decoder& chain) const {
  VocabularyBytes out;
  out.tokens.resize(entries_.size());
  out.special_tokens = names_;
  Speller speller(chain);
  const bool has_first = has_start_rule(chain);
  std::string first;
  for (size_t id = 0; id < entries_.size(); ++id) {
    const Token token = token_of(entries_[id]);
    if (!token.known || token.special) continue;
    std::string& later = out.tokens[id];
    speller.later(token.bytes, &later);
    if (!has_first) continue;
    first.clear();
    speller.first(token.bytes, &first);
    if (first == later) continue;
    const bool told = !first.empty() || speller.ends_start(token.bytes, later);
    out.first_tokens.emplace_back(static_cast<int32_t>(id), told ? first : std::string(kNever));
  }
  return out;
}

VocabularyBytes TokenDecoder::piece_bytes(const PieceRules& rules) const {
  VocabularyBytes out;
  out.tokens.resize(entries_.size());
  out.special_tokens = names_;
  out.special_restarts = true;
  for (size_t id = 0; id < entries_.size(); ++id) {
    const Token token = token_of(entries_[id]);
    if (token.cuts || token.unknown) continue;
    out.tokens[id] = token.bytes;
    if (!token.leading_space) continue;
    const std::string_view first = token.bytes.substr(1);
    // Without every leading space, the start goes on behind one.
    const bool lost = first.empty() && rules.drops_every_space;
    out.first_tokens.emplace_back(static_cast<int32_t>(id), lost ? kNever : first);
  }
  return out;
}

}  // namespace headrace::text
