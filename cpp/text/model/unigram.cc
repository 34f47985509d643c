#include "text/model/unigram.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "headrace/status.h"
#include "text/model/byte_pieces.h"
#include "text/unicode/utf8.h"

namespace headrace::text {

namespace {

constexpr double kUnknownPenalty = 10.0;
constexpr double kUserDefinedScore = 0.1;     ///< of each byte but the first
constexpr float kMaxSentencePieceSum = 1e5f;  ///< larger sums start again at 0, to stay precise
constexpr size_t kStepsOfFuel = 8;            ///< steps in the trie for one of fuel
/// Tokens are given out as soon as nothing can change them, but not for each character.
constexpr size_t kWindow = 128;

/// The best way to the place behind it.
template <class Sum>
struct Place {
  static constexpr uint32_t kNowhere = static_cast<uint32_t>(-1);
  Sum score = 0;
  uint32_t begin = kNowhere;  ///< of its last token
  int32_t id = 0;
};

struct UnigramScratch final : ModelScratch {
  struct Step {
    uint32_t begin, end;
    int32_t id;
  };
  std::vector<Place<double>> doubles;
  std::vector<Place<float>> floats;
  std::vector<Step> steps;
  bool clean = true;  ///< no place has a token: not so behind an exception

  std::vector<Place<double>>& places(double) { return doubles; }
  std::vector<Place<float>>& places(float) { return floats; }
};

}  // namespace

/// One word's search. Places are counted from `start_`, before which all is settled.
template <class Sum>
class Unigram::Search {
 public:
  Search(const Unigram& model, std::string_view word, UnigramScratch* scratch,
         std::vector<Token>* tokens)
      : model_(model),
        word_(word),
        places_(scratch->places(Sum())),
        steps_(scratch->steps),
        clean_(scratch->clean),
        tokens_(*tokens) {}

  void run(Fuel* fuel) {
    const bool byte_level = model_.vocabulary_->byte_level();
    if (!clean_) {
      places_.clear();
    }
    clean_ = false;
    make_room(0);
    places_[0].score = 0;
    for (size_t at = 0; at < word_.size();) {
      if (at == reach_ && at - start_ >= kWindow) {
        settle();
      }
      make_room(at);
      const size_t size = byte_level ? 1 : std::min(utf8_size(word_[at]), word_.size() - at);
      fuel->spend(1 + from(at, size) / kStepsOfFuel);
      at += size;
    }
    settle();
    clean_ = true;
    end_unknown();
  }

 private:
  void make_room(size_t at) {
    const size_t end =
        std::min(at + std::max<size_t>(model_.vocabulary_->longest(), 4), word_.size());
    if (end - start_ >= places_.size()) {
      places_.resize(std::max(end - start_ + 1, 2 * places_.size()));
    }
  }

  /// All tokens that begin at `at`; `size`: of the character there.
  size_t from(size_t at, size_t size) {
    if constexpr (std::is_same_v<Sum, float>) {
      keep_small(at);
    }
    const Sum here = places_[at - start_].score;
    uint32_t node = ByteTrie::kRoot;
    bool single = false;
    size_t end = at;
    while (end < word_.size() && model_.trie_.step(&node, word_[end])) {
      ++end;
      const int32_t id = model_.trie_.id_at(node);
      if (id != ByteTrie::kNoId) {
        const auto index = static_cast<size_t>(id);
        offer(at, end, id, static_cast<Sum>(static_cast<Sum>(model_.scores_[index]) + here));
        single |= end - at == size;
      }
    }
    if (!single) {
      const auto score = static_cast<Sum>(static_cast<Sum>(model_.unknown_score_) + here);
      if (offer(at, at + size, model_.options_.unknown_id, score) &&
          model_.options_.unknown_id == Vocabulary::kNoId) {
        throw Error(ErrorCode::kInvalidArgument,
                    "the text has a character that is in no token, at byte " + std::to_string(at) +
                        " of a word, and the tokenizer has no unknown token");
      }
    }
    return end - at;
  }

  /// As the sentencepiece package has it: of long texts, rounding decides between equal ways.
  void keep_small(size_t at) {
    const Sum sum = places_[at - start_].score;
    if (std::fabs(sum) <= kMaxSentencePieceSum) {
      return;
    }
    places_[at - start_].score = 0;
    for (size_t i = at + 1; i <= reach_; ++i) {
      if (places_[i - start_].begin != Place<Sum>::kNowhere) {
        places_[i - start_].score -= sum;
      }
    }
  }

  bool offer(size_t begin, size_t end, int32_t id, Sum score) {
    Place<Sum>& place = places_[end - start_];
    if (place.begin != Place<Sum>::kNowhere && score <= place.score) {
      return false;
    }
    place = {score, static_cast<uint32_t>(begin), id};
    reach_ = std::max(reach_, end);
    return true;
  }

  /// Every way leads through `reach_`: the best one to there stays.
  void settle() {
    steps_.clear();
    for (size_t end = reach_; end > start_;) {
      const Place<Sum>& place = places_[end - start_];
      steps_.push_back({place.begin, static_cast<uint32_t>(end), place.id});
      end = place.begin;
    }
    const Sum score = places_[reach_ - start_].score;
    std::fill_n(places_.begin(), reach_ - start_ + 1, Place<Sum>());
    start_ = reach_;
    places_[0].score = score;
    for (size_t i = steps_.size(); i > 0; --i) {
      give(steps_[i - 1]);
    }
  }

  void give(const UnigramScratch::Step& step) {
    if (step.id == model_.options_.unknown_id) {
      if (!in_unknown_) {
        unknown_.begin = step.begin;
      }
      unknown_.end = step.end;
      in_unknown_ = true;
      return;
    }
    end_unknown();
    tokens_.push_back({step.id, {step.begin, step.end}});
  }

  /// Neighbouring unknown characters are one token.
  void end_unknown() {
    if (!in_unknown_) {
      return;
    }
    in_unknown_ = false;
    const std::string_view text = word_.substr(unknown_.begin, unknown_.end - unknown_.begin);
    if (model_.options_.rules == UnigramOptions::Rules::kTokenizerJson) {
      const int32_t id = model_.vocabulary_->find(text);
      if (id != Vocabulary::kNoId) {  // unlikely scores: a token lost against its characters
        tokens_.push_back({id, unknown_});
        return;
      }
    }
    if (!model_.options_.byte_fallback ||
        !append_byte_pieces(text, unknown_, model_.byte_ids_, &tokens_)) {
      tokens_.push_back({model_.options_.unknown_id, unknown_});
    }
  }

  const Unigram& model_;
  std::string_view word_;
  std::vector<Place<Sum>>& places_;
  std::vector<UnigramScratch::Step>& steps_;
  bool& clean_;
  std::vector<Token>& tokens_;
  size_t start_ = 0;
  size_t reach_ = 0;
  bool in_unknown_ = false;
  Range unknown_;
};

Unigram::Unigram(std::shared_ptr<const Vocabulary> vocabulary, std::vector<double> scores,
                 const UnigramOptions& options)
    : vocabulary_(std::move(vocabulary)), options_(options), scores_(std::move(scores)) {
  check(*vocabulary_);
  set_scores();
  std::vector<ByteTrie::Entry> entries;
  entries.reserve(static_cast<size_t>(vocabulary_->count()));
  const bool all = options_.rules == UnigramOptions::Rules::kTokenizerJson;
  for (int32_t id = 0; id < vocabulary_->end(); ++id) {
    const TokenKind kind = vocabulary_->kind(id);
    if (vocabulary_->is_spelled(id)) {
      continue;
    }
    if (kind == TokenKind::kNormal || kind == TokenKind::kUserDefined ||
        (all && kind != TokenKind::kNone)) {
      entries.push_back({vocabulary_->bytes(id), id});
    }
  }
  std::erase_if(entries, [](const auto& entry) { return entry.bytes.empty(); });
  trie_ = ByteTrie(std::move(entries));
  byte_ids_ = byte_piece_ids(*vocabulary_);
}

void Unigram::check(const Vocabulary& vocabulary) const {
  if (scores_.size() != static_cast<size_t>(vocabulary.end())) {
    throw Error(ErrorCode::kCorruptFile, "a Unigram vocabulary of " +
                                             std::to_string(vocabulary.end()) + " tokens has " +
                                             std::to_string(scores_.size()) + " scores");
  }
  for (size_t id = 0; id < scores_.size(); ++id) {
    if (!std::isfinite(scores_[id])) {
      throw Error(ErrorCode::kCorruptFile,
                  "the score of token " + std::to_string(id) + " is no finite number");
    }
  }
  const int32_t unknown = options_.unknown_id;
  if (unknown != Vocabulary::kNoId && (unknown < 0 || unknown >= vocabulary.end() ||
                                       vocabulary.kind(unknown) == TokenKind::kNone)) {
    throw Error(ErrorCode::kCorruptFile,
                "there is no token of the unknown token's id " + std::to_string(unknown));
  }
}

void Unigram::set_scores() {
  if (options_.rules == UnigramOptions::Rules::kTokenizerJson) {
    double least = std::numeric_limits<double>::infinity();
    for (int32_t id = 0; id < vocabulary_->end(); ++id) {
      if (vocabulary_->kind(id) != TokenKind::kNone) {
        least = std::min(least, scores_[static_cast<size_t>(id)]);
      }
    }
    unknown_score_ = least - kUnknownPenalty;
    return;
  }
  // In the float arithmetic of the sentencepiece package.
  float least = FLT_MAX;
  for (int32_t id = 0; id < vocabulary_->end(); ++id) {
    double& score = scores_[static_cast<size_t>(id)];
    if (vocabulary_->kind(id) == TokenKind::kNormal) {
      least = std::min(least, static_cast<float>(score));
    } else if (vocabulary_->kind(id) == TokenKind::kUserDefined) {
      const auto size = static_cast<double>(vocabulary_->bytes(id).size());
      score = static_cast<double>(static_cast<float>(kUserDefinedScore * (size - 1)));
    }
  }
  unknown_score_ = static_cast<double>(least - static_cast<float>(kUnknownPenalty));
}

std::unique_ptr<ModelScratch> Unigram::make_scratch() const {
  return std::make_unique<UnigramScratch>();
}

void Unigram::encode(std::string_view word, bool /*ranges: they cost nothing*/,
                     ModelScratch* scratch, Fuel* fuel, std::vector<Token>* tokens) const {
  auto* own = static_cast<UnigramScratch*>(scratch);
  if (options_.rules == UnigramOptions::Rules::kTokenizerJson) {
    Search<double>(*this, word, own, tokens).run(fuel);
  } else {
    Search<float>(*this, word, own, tokens).run(fuel);
  }
}

}  // namespace headrace::text
