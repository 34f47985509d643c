#include "text/files/sentencepiece/scored_bpe.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "headrace/status.h"
#include "text/model/byte_pieces.h"
#include "text/model/word_cache.h"
#include "text/unicode/utf8.h"

namespace headrace::text {

namespace {

constexpr size_t kBytesOfFuel = 16;  ///< of text looked up for one of fuel
constexpr size_t kShortPart = 48;    ///< symbols; scanning beats a heap up to about there
constexpr float kNoPair = -std::numeric_limits<float>::infinity();

/// Can merges make it?
bool is_piece(TokenKind kind) {
  return kind == TokenKind::kNormal || kind == TokenKind::kUserDefined ||
         kind == TokenKind::kUnused;
}

struct ScoredSymbol {
  static constexpr uint32_t kEnd = static_cast<uint32_t>(-1);
  uint32_t begin = 0;
  uint32_t size = 0;  ///< 0: merged into another one
  uint32_t before = kEnd;
  uint32_t next = kEnd;
  int32_t id = Vocabulary::kNoId;
  bool frozen = false;
  int32_t pair_id = Vocabulary::kNoId;  ///< of a scanned part: the piece it makes with the next one
  float pair_score = kNoPair;
};

struct ScoredPair {
  float score = 0;
  uint32_t left = 0;
  uint32_t right = 0;
  uint32_t size = 0;
  int32_t id = 0;
};

/// Of a heap whose top is the highest score, leftmost.
struct ComesLater {
  bool operator()(const ScoredPair& a, const ScoredPair& b) const noexcept {
    return a.score < b.score || (a.score == b.score && a.left > b.left);
  }
};

struct ScoredBpeScratch final : ModelScratch {
  std::vector<ScoredSymbol> symbols;
  std::vector<ScoredPair> heap;
  /// By unused piece: how much of it was the left one of the last pair that could make it.
  std::unordered_map<int32_t, uint32_t> splits;
  std::vector<Range> stack;
  std::vector<int32_t> ids;
  WordCache words;
};

}  // namespace

class ScoredBpe::Merging {
 public:
  Merging(const ScoredBpe& model, std::string_view word, ScoredBpeScratch* scratch, Fuel* fuel,
          std::vector<Token>* tokens)
      : model_(model),
        vocabulary_(*model.vocabulary_),
        word_(word),
        scratch_(*scratch),
        symbols_(scratch->symbols),
        heap_(scratch->heap),
        splits_(scratch->splits),
        stack_(scratch->stack),
        fuel_(*fuel),
        tokens_(*tokens) {}

  void run() {
    const size_t before = tokens_.size();
    if (!encode_parts()) {
      // What an unused piece falls apart into depends on the order of all merges of the word.
      tokens_.resize(before);
      in_unknown_ = false;
      encode_whole();
    }
    end_unknown();
  }

 private:
  /// False if an unused piece is there; what `tokens_` got is of no use then.
  bool encode_parts() {
    size_t begin = 0;
    char32_t last = 0;
    for (size_t at = 0; at < word_.size();) {
      const PieceMatcher::Match match = user_defined(at);
      const size_t start = at;
      if (match.size > 0) {
        if (!encode_part(begin, start)) return false;
        begin = at = start + match.size;
        give(match.id, {static_cast<uint32_t>(start), static_cast<uint32_t>(at)});
        continue;
      }
      const char32_t value = next_char(word_, &at);
      if (start > begin && !model_.junctions_.may_join(last, value)) {
        if (!encode_part(begin, start)) return false;
        begin = start;
      }
      last = value;
    }
    return encode_part(begin, word_.size());
  }

  PieceMatcher::Match user_defined(size_t at) {
    if (model_.user_defined_.empty()) {
      fuel_.spend(1);
      return {};
    }
    size_t steps = 0;
    const PieceMatcher::Match match = model_.user_defined_.longest(word_.substr(at), &steps);
    fuel_.spend(1 + steps / kBytesOfFuel);
    return match;
  }

  /// Of a stretch that no merge goes beyond, without user-defined pieces. False as above.
  bool encode_part(size_t begin, size_t end) {
    if (begin == end) return true;
    const std::string_view part = word_.substr(begin, end - begin);
    const uint32_t hash = Vocabulary::hash(part);
    if (const CachedWord* known = scratch_.words.find(part, hash); known != nullptr) {
      give_known(known->ids.data(), known->count, begin);
      return true;
    }
    symbols_.clear();
    for (size_t at = begin; at < end;) {
      const size_t size = utf8_size(word_[at]);
      add_symbol(at, size, find(at, size), /*frozen=*/false);
      at += size;
    }
    symbols_.back().next = ScoredSymbol::kEnd;
    if (symbols_.size() <= kShortPart) {
      scan_merges();
    } else {
      heap_merges();
    }
    scratch_.ids.clear();
    bool known = true;
    for (const ScoredSymbol& symbol : symbols_) {
      if (symbol.size == 0) continue;
      if (symbol.id == Vocabulary::kNoId) known = false;
      if (vocabulary_.kind(symbol.id) == TokenKind::kUnused) return false;
      scratch_.ids.push_back(symbol.id);
      give(symbol.id, {symbol.begin, symbol.begin + symbol.size});
    }
    if (known) scratch_.words.keep(part, hash, scratch_.ids.data(), scratch_.ids.size());
    return true;
  }

  void give_known(const int32_t* ids, size_t count, size_t begin) {
    end_unknown();
    auto at = static_cast<uint32_t>(begin);
    for (size_t i = 0; i < count; ++i) {
      const uint32_t end = at + static_cast<uint32_t>(vocabulary_.bytes(ids[i]).size());
      tokens_.push_back({ids[i], {at, end}});
      at = end;
    }
  }

  void encode_whole() {
    symbols_.clear();
    for (size_t at = 0; at < word_.size();) {
      const PieceMatcher::Match match = user_defined(at);
      const bool frozen = match.size > 0;
      const size_t size = frozen ? match.size : utf8_size(word_[at]);
      add_symbol(at, size, frozen ? match.id : find(at, size), frozen);
      at += size;
    }
    symbols_.back().next = ScoredSymbol::kEnd;
    splits_.clear();
    heap_merges();
    for (const ScoredSymbol& symbol : symbols_) {
      if (symbol.size > 0) give_split(symbol);
    }
  }

  /// Also says which one is next, which the last one hasn't.
  void add_symbol(size_t at, size_t size, int32_t id, bool frozen) {
    const auto index = static_cast<uint32_t>(symbols_.size());
    ScoredSymbol symbol;
    symbol.begin = static_cast<uint32_t>(at);
    symbol.size = static_cast<uint32_t>(size);
    symbol.before = index == 0 ? ScoredSymbol::kEnd : index - 1;
    symbol.next = index + 1;
    symbol.id = id;
    symbol.frozen = frozen;
    symbols_.push_back(symbol);
  }

  void scan_merges() {
    const auto pair_with_next = [&](size_t at) {
      ScoredSymbol& left = symbols_[at];
      left.pair_id = at + 1 == symbols_.size()
                         ? Vocabulary::kNoId
                         : find(left.begin, left.size + symbols_[at + 1].size);
      left.pair_score = left.pair_id == Vocabulary::kNoId
                            ? kNoPair
                            : model_.scores_[static_cast<size_t>(left.pair_id)];
    };
    for (size_t at = 0; at < symbols_.size(); ++at) pair_with_next(at);
    while (true) {
      size_t best = 0;
      for (size_t at = 1; at < symbols_.size(); ++at) {
        if (symbols_[at].pair_score > symbols_[best].pair_score) best = at;
      }
      if (symbols_[best].pair_id == Vocabulary::kNoId) return;
      symbols_[best].size += symbols_[best + 1].size;
      symbols_[best].id = symbols_[best].pair_id;
      symbols_.erase(symbols_.begin() + static_cast<ptrdiff_t>(best) + 1);
      pair_with_next(best);
      if (best > 0) pair_with_next(best - 1);
    }
  }

  void heap_merges() {
    heap_.clear();
    for (uint32_t right = 1; right < symbols_.size(); ++right) {
      offer(right - 1, right);
    }
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), ComesLater());
      const ScoredPair pair = heap_.back();
      heap_.pop_back();
      merge(pair);
    }
  }

  int32_t find(size_t begin, size_t size) {
    if (size > vocabulary_.longest()) {
      return Vocabulary::kNoId;
    }
    fuel_.spend(1 + size / kBytesOfFuel);
    const int32_t id = vocabulary_.find(word_.substr(begin, size));
    return is_piece(vocabulary_.kind(id)) ? id : Vocabulary::kNoId;
  }

  void offer(uint32_t left, uint32_t right) {
    if (left == ScoredSymbol::kEnd || right == ScoredSymbol::kEnd || symbols_[left].frozen ||
        symbols_[right].frozen) {
      return;
    }
    const uint32_t size = symbols_[left].size + symbols_[right].size;
    const int32_t id = find(symbols_[left].begin, size);
    if (id == Vocabulary::kNoId) {
      return;
    }
    heap_.push_back({model_.scores_[static_cast<size_t>(id)], left, right, size, id});
    std::push_heap(heap_.begin(), heap_.end(), ComesLater());
    if (vocabulary_.kind(id) == TokenKind::kUnused) {
      splits_[id] = symbols_[left].size;
    }
  }

  void merge(const ScoredPair& pair) {
    ScoredSymbol& left = symbols_[pair.left];
    ScoredSymbol& right = symbols_[pair.right];
    if (left.size == 0 || right.size == 0 || left.size + right.size != pair.size) {
      return;  // one of the two has become a part of something else meanwhile
    }
    left.size = pair.size;
    left.id = pair.id;
    left.next = right.next;
    right.size = 0;
    if (left.next != ScoredSymbol::kEnd) {
      symbols_[left.next].before = pair.left;
    }
    offer(left.before, pair.left);
    offer(pair.left, left.next);
  }

  /// A symbol's tokens: unused pieces fall apart into what they were made of.
  void give_split(const ScoredSymbol& symbol) {
    if (symbol.id == Vocabulary::kNoId || vocabulary_.kind(symbol.id) != TokenKind::kUnused) {
      give(symbol.id, {symbol.begin, symbol.begin + symbol.size});
      return;
    }
    stack_.assign(1, {symbol.begin, symbol.begin + symbol.size});
    while (!stack_.empty()) {
      const Range range = stack_.back();
      stack_.pop_back();
      const int32_t id = find(range.begin, range.end - range.begin);
      const auto split = splits_.find(id);
      const bool unused = vocabulary_.kind(id) == TokenKind::kUnused;
      if (!unused || split == splits_.end()) {
        give(unused ? Vocabulary::kNoId : id, range);
        continue;
      }
      const uint32_t middle = range.begin + split->second;
      stack_.push_back({middle, range.end});
      stack_.push_back({range.begin, middle});
    }
  }

  void give(int32_t id, Range range) {
    if (id == Vocabulary::kNoId) {
      if (!in_unknown_) {
        unknown_.begin = range.begin;
      }
      unknown_.end = range.end;
      in_unknown_ = true;
      return;
    }
    end_unknown();
    tokens_.push_back({id, range});
  }

  void end_unknown() {
    if (!in_unknown_) {
      return;
    }
    in_unknown_ = false;
    const std::string_view text = word_.substr(unknown_.begin, unknown_.end - unknown_.begin);
    if (!model_.options_.byte_fallback ||
        !append_byte_pieces(text, unknown_, model_.byte_ids_, &tokens_)) {
      tokens_.push_back({model_.options_.unknown_id, unknown_});
    }
  }

  const ScoredBpe& model_;
  const Vocabulary& vocabulary_;
  std::string_view word_;
  ScoredBpeScratch& scratch_;
  std::vector<ScoredSymbol>& symbols_;
  std::vector<ScoredPair>& heap_;
  std::unordered_map<int32_t, uint32_t>& splits_;
  std::vector<Range>& stack_;
  Fuel& fuel_;
  std::vector<Token>& tokens_;
  bool in_unknown_ = false;
  Range unknown_;
};

ScoredBpe::ScoredBpe(std::shared_ptr<const Vocabulary> vocabulary, std::vector<float> scores,
                     const ScoredBpeOptions& options)
    : vocabulary_(std::move(vocabulary)),
      scores_(std::move(scores)),
      options_(options),
      user_defined_(*vocabulary_),
      byte_ids_(byte_piece_ids(*vocabulary_)) {
  if (scores_.size() != static_cast<size_t>(vocabulary_->end())) {
    throw_error(ErrorCode::kCorruptFile, "a vocabulary of ", vocabulary_->end(), " tokens has ",
                scores_.size(), " scores");
  }
  for (int32_t id = 0; id < vocabulary_->end(); ++id) {
    if (is_piece(vocabulary_->kind(id))) junctions_.add_within(vocabulary_->bytes(id));
  }
}

std::unique_ptr<ModelScratch> ScoredBpe::make_scratch() const {
  return std::make_unique<ScoredBpeScratch>();
}

void ScoredBpe::encode(std::string_view word, bool /*ranges: they cost nothing*/,
                       ModelScratch* scratch, Fuel* fuel, std::vector<Token>* tokens) const {
  if (word.empty()) return;
  Merging(*this, word, static_cast<ScoredBpeScratch*>(scratch), fuel, tokens).run();
}

}  // namespace headrace::text
