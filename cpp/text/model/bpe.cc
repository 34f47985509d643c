#include "text/model/bpe.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "text/model/bpe_scratch.h"
#include "text/model/byte_pieces.h"
#include "text/unicode/utf8.h"
#include "text/vocab/byte_alphabet.h"

namespace headrace::text {
namespace {

constexpr size_t kShortPart = 48;  // symbols; scanning beats a heap up to about there
constexpr int32_t kNoId = Vocabulary::kNoId;

bool is_one_char(std::string_view text) {
  return !text.empty() && utf8_size(text[0]) == text.size();
}

}  // namespace

Bpe::Bpe(std::shared_ptr<const Vocabulary> vocabulary, BpeOptions options, PairTable pairs,
         std::vector<int32_t> merged, std::unique_ptr<const Junctions> junctions)
    : vocabulary_(std::move(vocabulary)),
      options_(std::move(options)),
      pairs_(std::move(pairs)),
      merged_(std::move(merged)),
      junctions_(std::move(junctions)),
      affixes_(!options_.continuing_subword_prefix.empty() ||
               !options_.end_of_word_suffix.empty()) {
  if (options_.byte_fallback) byte_tokens_ = byte_piece_ids(*vocabulary_);
  if (vocabulary_->byte_level()) {
    make_byte_symbols();
  } else {
    make_character_symbols();
  }
}

void Bpe::make_byte_symbols() {
  for (size_t byte = 0; byte < 256; ++byte) {
    const char value = static_cast<char>(byte);
    byte_symbols_[byte] = vocabulary_->find(std::string_view(&value, 1));
  }
  first_pairs_.assign(size_t{256} * 256, PairTable::kNoRank);
  const auto byte_of = [&](int32_t id) {
    const std::string_view bytes = vocabulary_->bytes(id);
    const bool one = bytes.size() == 1 && !vocabulary_->is_spelled(id);
    return one ? static_cast<int>(static_cast<uint8_t>(bytes[0])) : -1;
  };
  pairs_.for_each([&](int32_t left, int32_t right, uint32_t rank) {
    const int first = byte_of(left);
    const int second = first < 0 ? -1 : byte_of(right);
    if (second < 0) return;
    first_pairs_[static_cast<size_t>(first) << 8 | static_cast<size_t>(second)] = rank;
  });
}

void Bpe::make_character_symbols() {
  constexpr size_t kPages = 0x110000 >> 8;
  pages_.assign(kPages, 0);
  symbols_.assign(256, kNoId);
  for (int32_t id = 0; id < vocabulary_->end(); ++id) {
    const std::string_view text = vocabulary_->bytes(id);
    if (!is_one_char(text)) continue;
    size_t at = 0;
    const char32_t value = next_char(text, &at);
    uint16_t& page = pages_[value >> 8];
    if (page == 0) {
      page = static_cast<uint16_t>(symbols_.size() >> 8);
      symbols_.resize(symbols_.size() + 256, kNoId);
    }
    symbols_[static_cast<size_t>(page) << 8 | (value & 0xFF)] = id;
  }
}

std::unique_ptr<ModelScratch> Bpe::make_scratch() const { return std::make_unique<BpeScratch>(); }

/// A stretch of a word that no merge goes beyond.
struct Bpe::Part {
  std::string_view text;
  uint32_t begin = 0;  ///< in the word
  bool ranges = false;
};

void Bpe::encode(std::string_view word, bool ranges, ModelScratch* scratch, Fuel* fuel,
                 std::vector<Token>* tokens) const {
  if (word.empty()) return;
  fuel->spend(word.size());
  if (options_.ignore_merges) {
    const int32_t id = vocabulary_->find(word);
    if (id != kNoId) {
      tokens->push_back(Token{id, Range{0, static_cast<uint32_t>(word.size())}});
      return;
    }
  }
  auto* own = static_cast<BpeScratch*>(scratch);
  if (affixes_) {
    encode_any(Part{word, 0, ranges}, own, tokens);
  } else if (vocabulary_->byte_level()) {
    encode_bytes(word, ranges, own, tokens);
  } else {
    encode_characters(word, ranges, own, tokens);
  }
}

void Bpe::encode_bytes(std::string_view word, bool ranges, BpeScratch* scratch,
                       std::vector<Token>* tokens) const {
  const Part part{word, 0, ranges};
  const uint32_t hash = Vocabulary::hash(word);
  if (const CachedWord* found = scratch->words.find(word, hash); found != nullptr) {
    emit_known(found->ids.data(), found->count, part, tokens);
    return;
  }
  scratch->ids.resize(word.size());
  for (size_t i = 0; i < word.size(); ++i) {
    const int32_t id = byte_symbols_[static_cast<uint8_t>(word[i])];
    if (id == kNoId) {
      encode_any(part, scratch, tokens);
      return;
    }
    scratch->ids[i] = id;
  }
  encode_known(part, hash, scratch, tokens);
}

void Bpe::encode_characters(std::string_view word, bool ranges, BpeScratch* scratch,
                            std::vector<Token>* tokens) const {
  size_t begin = 0;
  size_t vanished = 0;  // bytes: as in the `tokenizers` package, the ranges behind don't count them
  bool known = true;
  const auto flush = [&](size_t end) {
    if (begin == end) return;
    const Part part{word.substr(begin, end - begin), static_cast<uint32_t>(begin - vanished),
                    ranges};
    if (!known) {
      vanished += part.text.size() - encode_any(part, scratch, tokens);
    } else if (scratch->ids.size() == 1) {
      emit_known(scratch->ids.data(), 1, part, tokens);
    } else {
      const uint32_t hash = Vocabulary::hash(part.text);
      const CachedWord* found = scratch->words.find(part.text, hash);
      if (found != nullptr) {
        emit_known(found->ids.data(), found->count, part, tokens);
      } else {
        encode_known(part, hash, scratch, tokens);
      }
    }
    begin = end;
    known = true;
  };
  scratch->ids.clear();
  char32_t before = 0;
  int32_t before_id = kNoId;
  for (size_t at = 0; at < word.size();) {
    const size_t start = at;
    const char32_t value = next_char(word, &at);
    const int32_t id = symbol_of(value);
    if (id != kNoId && before_id != kNoId && !junctions_->may_join(before, value)) {
      flush(start);
      scratch->ids.clear();
    }
    if (id == kNoId) known = false;
    scratch->ids.push_back(id);
    before = value;
    before_id = id;
  }
  flush(word.size());
}

/// REQUIRES: scratch->ids has the part's symbols, none of them kNoId.
void Bpe::encode_known(const Part& part, uint32_t hash, BpeScratch* scratch,
                       std::vector<Token>* tokens) const {
  size_t count = scratch->ids.size();
  if (count > kShortPart) {
    scratch->symbols.clear();
    size_t at = 0;
    for (const int32_t id : scratch->ids) {
      const size_t size = vocabulary_->byte_level() ? 1 : utf8_size(part.text[at]);
      scratch->add(id, static_cast<uint32_t>(size));
      at += size;
    }
    heap_merges(scratch);
    emit_symbols(part, scratch, tokens);
    return;
  }
  if (count > 1) count = scan_merges(part.text, scratch->ids.data(), count);
  scratch->words.keep(part.text, hash, scratch->ids.data(), count);
  emit_known(scratch->ids.data(), count, part, tokens);
}

/// Merges `ids` in place; how many are left.
size_t Bpe::scan_merges(std::string_view text, int32_t* ids, size_t count) const {
  std::array<uint32_t, kShortPart> ranks;  // of each id and the next
  if (vocabulary_->byte_level()) {
    for (size_t i = 0; i + 1 < count; ++i) {
      ranks[i] = first_pairs_[static_cast<size_t>(static_cast<uint8_t>(text[i])) << 8 |
                              static_cast<uint8_t>(text[i + 1])];
    }
  } else {
    for (size_t i = 0; i + 1 < count; ++i) ranks[i] = pairs_.rank(ids[i], ids[i + 1]);
  }
  size_t pairs = count - 1;
  while (pairs > 0) {
    size_t best = 0;
    uint32_t rank = ranks[0];
    for (size_t i = 1; i < pairs; ++i) {
      if (ranks[i] < rank) {
        rank = ranks[i];
        best = i;
      }
    }
    if (rank == PairTable::kNoRank) break;
    ids[best] = merged_[rank];
    std::memmove(ids + best + 1, ids + best + 2, (pairs - best - 1) * sizeof(int32_t));
    std::memmove(ranks.data() + best, ranks.data() + best + 1,
                 (pairs - best - 1) * sizeof(uint32_t));
    --pairs;
    if (best > 0) ranks[best - 1] = pairs_.rank(ids[best - 1], ids[best]);
    if (best < pairs) ranks[best] = pairs_.rank(ids[best], ids[best + 1]);
  }
  return pairs + 1;
}

/// The tokens of a part each of whose ids has just the text that it stands for.
void Bpe::emit_known(const int32_t* ids, size_t count, const Part& part,
                     std::vector<Token>* tokens) const {
  if (!part.ranges) {
    for (size_t i = 0; i < count; ++i) tokens->push_back(Token{ids[i], {}});
    return;
  }
  uint32_t at = part.begin;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t end = at + static_cast<uint32_t>(vocabulary_->bytes(ids[i]).size());
    tokens->push_back(Token{ids[i], Range{at, end}});
    at = end;
  }
}

/// The pair of this symbol and the next has changed.
void Bpe::rank_symbol(uint32_t at, BpeScratch* scratch) const {
  BpeSymbol& symbol = scratch->symbols[at];
  symbol.rank = symbol.next == BpeSymbol::kNone
                    ? PairTable::kNoRank
                    : pairs_.rank(symbol.id, scratch->symbols[symbol.next].id);
}

void Bpe::heap_merges(BpeScratch* scratch) const {
  std::vector<BpeSymbol>& symbols = scratch->symbols;
  std::vector<uint64_t>& heap = scratch->heap;  // rank, then place
  heap.clear();
  for (uint32_t at = 0; at < symbols.size(); ++at) {
    rank_symbol(at, scratch);
    if (symbols[at].rank != PairTable::kNoRank) {
      heap.push_back(static_cast<uint64_t>(symbols[at].rank) << 32 | at);
    }
  }
  const auto push = [&](uint32_t at) {
    rank_symbol(at, scratch);
    if (symbols[at].rank == PairTable::kNoRank) return;
    heap.push_back(static_cast<uint64_t>(symbols[at].rank) << 32 | at);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    const auto at = static_cast<uint32_t>(heap.front());
    const auto rank = static_cast<uint32_t>(heap.front() >> 32);
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    BpeSymbol& left = symbols[at];
    if (left.rank != rank) continue;  // the pair is another now, or has merged into one before
    BpeSymbol& right = symbols[left.next];
    left.id = merged_[rank];
    left.size += right.size;
    left.next = right.next;
    right.rank = PairTable::kNoRank;
    right.merged = true;
    if (left.next != BpeSymbol::kNone) symbols[left.next].before = at;
    push(at);
    if (left.before != BpeSymbol::kNone) push(left.before);
  }
}

/// The bytes that they stand for.
size_t Bpe::emit_symbols(const Part& part, BpeScratch* scratch, std::vector<Token>* tokens) const {
  uint32_t at = part.begin;
  for (const BpeSymbol& symbol : scratch->symbols) {
    if (symbol.merged) continue;
    tokens->push_back(Token{symbol.id, Range{at, at + symbol.size}});
    at += symbol.size;
  }
  return at - part.begin;
}

/// Any part: of characters without tokens, too. The bytes that its tokens stand for.
size_t Bpe::encode_any(const Part& part, BpeScratch* scratch, std::vector<Token>* tokens) const {
  scratch->symbols.clear();
  if (vocabulary_->byte_level()) {
    // Offsets go over the spelling in the alphabet: what vanishes moves them by its size there.
    std::string spelled;
    append_alphabet_spelling(part.text, &spelled);
    start_symbols(spelled, scratch);
    heap_merges(scratch);
    const size_t first = tokens->size();
    emit_symbols(Part{spelled, 0, part.ranges}, scratch, tokens);
    if (part.ranges) unspell_ranges(spelled, std::span(*tokens).subspan(first));
    return part.text.size();
  }
  start_symbols(part.text, scratch);
  heap_merges(scratch);
  return emit_symbols(part, scratch, tokens);
}

/// From bytes of a spelling in the alphabet to the bytes that are spelled.
void Bpe::unspell_ranges(std::string_view spelled, std::span<Token> tokens) {
  std::vector<uint32_t> byte_at;
  byte_at.reserve(spelled.size());
  uint32_t byte = 0;
  for (size_t at = 0; at < spelled.size(); ++byte) {
    byte_at.insert(byte_at.end(), utf8_size(spelled[at]), byte);
    at += utf8_size(spelled[at]);
  }
  for (Token& token : tokens) {
    token.bytes.begin = byte_at[token.bytes.begin];
    token.bytes.end = byte_at[token.bytes.end - 1] + 1;
  }
}

/// The characters' symbols, as the `tokenizers` package finds them: an unknown token that waits for
/// others to join comes behind tokens of bytes, though these follow it in the text.
void Bpe::start_symbols(std::string_view text, BpeScratch* scratch) const {
  int32_t pending = kNoId;
  uint32_t pending_size = 0;
  std::string spelled;
  for (size_t at = 0; at < text.size();) {
    const auto size = static_cast<uint32_t>(utf8_size(text[at]));
    const bool last = at + size == text.size();
    spelled.clear();
    if (at > 0) spelled += options_.continuing_subword_prefix;
    spelled += text.substr(at, size);
    if (last) spelled += options_.end_of_word_suffix;
    at += size;
    const int32_t id = vocabulary_->find_spelling(spelled);
    if (id == kNoId && add_byte_tokens(spelled, scratch)) continue;
    if (id == kNoId && options_.unk == kNoId) continue;
    const bool joins = id == kNoId && options_.fuse_unk && pending != kNoId;
    if (pending != kNoId && !joins) scratch->add(pending, pending_size);
    if (id != kNoId) {
      pending = kNoId;
      scratch->add(id, size);
    } else {
      pending = options_.unk;
      pending_size = joins ? pending_size + size : size;
    }
  }
  if (pending != kNoId) scratch->add(pending, pending_size);
}

/// False if a byte has no token, or bytes are not to be used.
bool Bpe::add_byte_tokens(std::string_view spelled, BpeScratch* scratch) const {
  if (!options_.byte_fallback) return false;
  for (const char byte : spelled) {
    if (byte_tokens_[static_cast<uint8_t>(byte)] == kNoId) return false;
  }
  for (const char byte : spelled) scratch->add(byte_tokens_[static_cast<uint8_t>(byte)], 1);
  return true;
}

}  // namespace headrace::text
