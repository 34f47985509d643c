#include "text/files/sentencepiece/scored_bpe.h"

#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "headrace/status.h"
#include "text/model/byte_pieces.h"
#include "text/unicode/utf8.h"

namespace headrace::text {

namespace {

constexpr size_t kBytesOfFuel = 16;  ///< of text looked up for one of fuel

struct ScoredSymbol {
  static constexpr uint32_t kEnd = static_cast<uint32_t>(-1);
  uint32_t begin = 0;
  uint32_t size = 0;  ///< 0: merged into another one
  uint32_t before = kEnd;
  uint32_t next = kEnd;
  int32_t id = Vocabulary::kNoId;
  bool frozen = false;
};

struct ScoredPair {
  float score = 0;
  uint32_t left = 0;
  uint32_t right = 0;
  uint32_t size = 0;
  int32_t id = 0;
};

/// Of a heap whose top is the highest score, leftmost.
bool comes_later(const ScoredPair& a, const ScoredPair& b) {
  return a.score < b.score || (a.score == b.score && a.left > b.left);
}

struct ScoredBpeScratch final : ModelScratch {
  std::vector<ScoredSymbol> symbols;
  std::vector<ScoredPair> heap;
  /// By unused piece: how much of it was the left one of the last pair that could make it.
  std::unordered_map<int32_t, uint32_t> splits;
  std::vector<Range> stack;
};

}  // namespace

class ScoredBpe::Merging {
 public:
  Merging(const ScoredBpe& model, std::string_view word, ScoredBpeScratch* scratch, Fuel* fuel,
          std::vector<Token>* tokens)
      : model_(model),
        vocabulary_(*model.vocabulary_),
        word_(word),
        symbols_(scratch->symbols),
        heap_(scratch->heap),
        splits_(scratch->splits),
        stack_(scratch->stack),
        fuel_(*fuel),
        tokens_(*tokens) {}

  void run() {
    cut();
    heap_.clear();
    splits_.clear();
    for (uint32_t right = 1; right < symbols_.size(); ++right) {
      offer(right - 1, right);
    }
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), comes_later);
      const ScoredPair pair = heap_.back();
      heap_.pop_back();
      merge(pair);
    }
    for (uint32_t at = 0; at != ScoredSymbol::kEnd && at < symbols_.size();
         at = symbols_[at].next) {
      give(symbols_[at]);
    }
    end_unknown();
  }

 private:
  void cut() {
    symbols_.clear();
    for (size_t at = 0; at < word_.size();) {
      ScoredSymbol symbol;
      size_t steps = 0;
      const auto match = model_.user_defined_.longest(word_.substr(at), &steps);
      fuel_.spend(1 + steps / kBytesOfFuel);
      symbol.frozen = match.size > 0;
      symbol.begin = static_cast<uint32_t>(at);
      symbol.size = static_cast<uint32_t>(
          symbol.frozen ? match.size : std::min(utf8_size(word_[at]), word_.size() - at));
      symbol.id = symbol.frozen ? match.id : find(at, symbol.size);
      const auto index = static_cast<uint32_t>(symbols_.size());
      symbol.before = index == 0 ? ScoredSymbol::kEnd : index - 1;
      at += symbol.size;
      symbol.next = at < word_.size() ? index + 1 : ScoredSymbol::kEnd;
      symbols_.push_back(symbol);
    }
  }

  int32_t find(size_t begin, size_t size) {
    if (size > vocabulary_.longest()) {
      return Vocabulary::kNoId;
    }
    fuel_.spend(1 + size / kBytesOfFuel);
    const int32_t id = vocabulary_.find(word_.substr(begin, size));
    switch (vocabulary_.kind(id)) {
      case TokenKind::kNormal:
      case TokenKind::kUserDefined:
      case TokenKind::kUnused:
        return id;
      default:
        return Vocabulary::kNoId;
    }
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
    std::push_heap(heap_.begin(), heap_.end(), comes_later);
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
  void give(const ScoredSymbol& symbol) {
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
}

std::unique_ptr<ModelScratch> ScoredBpe::make_scratch() const {
  return std::make_unique<ScoredBpeScratch>();
}

void ScoredBpe::encode(std::string_view word, bool /*ranges: they cost nothing*/,
                       ModelScratch* scratch, Fuel* fuel, std::vector<Token>* tokens) const {
  Merging(*this, word, static_cast<ScoredBpeScratch*>(scratch), fuel, tokens).run();
}

}  // namespace headrace::text
