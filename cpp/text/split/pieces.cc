#include "text/split/pieces.h"

namespace headrace::text {

namespace {

/// Gathers pieces, which come front to back, into words. Empty ones count for their neighbours, but
/// are no words.
class Cutter {
 public:
  Cutter(Behavior behavior, std::vector<Range>* words) : behavior_(behavior), words_(words) {}

  void add(Range piece, bool is_match) {
    if (joins(is_match)) {
      current_.end = piece.end;
    } else {
      flush();
      current_ = piece;
      started_ = true;
    }
    current_removed_ = behavior_ == Behavior::kRemoved && is_match;
    last_match_ = is_match;
  }

  void flush() {
    if (started_ && !current_removed_ && current_.begin != current_.end) {
      words_->push_back(current_);
    }
  }

 private:
  /// Is this piece a part of the word so far?
  bool joins(bool is_match) const {
    if (!started_) {
      return false;
    }
    switch (behavior_) {
      case Behavior::kContiguous:
        return is_match == last_match_;
      case Behavior::kMergedWithPrevious:
        return is_match && !last_match_;
      case Behavior::kMergedWithNext:
        // Of several matches only the last one joins what is behind.
        return !is_match && last_match_;
      default:
        return false;
    }
  }

  Behavior behavior_;
  std::vector<Range>* words_;
  Range current_;
  bool started_ = false;
  bool current_removed_ = false;
  bool last_match_ = false;
};

}  // namespace

void cut_word(Range word, const std::vector<Range>& matches, Behavior behavior, bool invert,
              std::vector<Range>* words) {
  Cutter cutter(behavior, words);
  uint32_t done = word.begin;
  for (const Range& match : matches) {
    if (match.begin != done) {
      cutter.add({done, match.begin}, invert);
    }
    cutter.add(match, !invert);
    done = match.end;
  }
  if (done != word.end) {
    cutter.add({done, word.end}, invert);
  }
  cutter.flush();
}

}  // namespace headrace::text
