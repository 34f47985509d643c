#include "text/encode/pipeline.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "text/unicode/utf8.h"

namespace headrace::text {

void SequenceEnds::apply(std::vector<int32_t>* ids, std::vector<Range>* ranges) const {
  const bool starts = !ids->empty() && ids->front() == bos;
  const bool ends = !ids->empty() && ids->back() == eos;
  if (bos != Vocabulary::kNoId && add_bos && *add_bos != starts) {
    if (*add_bos) {
      ids->insert(ids->begin(), bos);
      if (ranges != nullptr) ranges->insert(ranges->begin(), Range{});
    } else {
      ids->erase(ids->begin());
      if (ranges != nullptr) ranges->erase(ranges->begin());
    }
  }
  if (eos == Vocabulary::kNoId || !add_eos || *add_eos == ends) return;
  if (*add_eos) {
    ids->push_back(eos);
    if (ranges != nullptr) ranges->emplace_back();
  } else if (!ids->empty()) {  // the one token that was first and last may be gone
    ids->pop_back();
    if (ranges != nullptr) ranges->pop_back();
  }
}

Pipeline::Pipeline(TokenizerParts parts, SequenceEnds ends)
    : parts_(std::move(parts)), post_processor_(parts_.post_processor), ends_(std::move(ends)) {
  int32_t end = parts_.vocabulary->end();
  for (const AddedToken& token : parts_.added.all()) end = std::max(end, token.id + 1);
  if (post_processor_.largest_id() >= end) {
    throw_error(ErrorCode::kCorruptFile, "post_processor: no token has the id ",
                post_processor_.largest_id());
  }
}

std::unique_ptr<EncodeScratch> Pipeline::make_scratch() const {
  auto scratch = std::make_unique<EncodeScratch>();
  scratch->model = parts_.model->make_scratch();
  return scratch;
}

/// One call of `encode`.
class Pipeline::Run {
 public:
  Run(const Pipeline& pipeline, std::string_view text, bool special_as_text, EncodeScratch* scratch,
      std::vector<int32_t>* ids, std::vector<Range>* ranges)
      : parts_(pipeline.parts_),
        post_(pipeline.post_processor_),
        text_(text),
        special_as_text_(special_as_text),
        scratch_(*scratch),
        ids_(*ids),
        ranges_(ranges),
        fuel_(text.size() * kStepsPerByte + kFreeSteps, "tokenizing this text") {}

  void all() {
    scratch_.raw.clear();
    parts_.added.split(text_, false, special_as_text_, &scratch_.raw);
    for (const AddedTokens::Piece& piece : scratch_.raw) {
      if (piece.id == Vocabulary::kNoId) {
        stretch(piece.begin, piece.end);
        continue;
      }
      const std::string_view found = text_.substr(piece.begin, piece.end - piece.begin);
      emit(piece.id, found,
           Range{static_cast<uint32_t>(piece.begin), static_cast<uint32_t>(piece.end)});
    }
  }

 private:
  static constexpr uint64_t kStepsPerByte = 64;
  static constexpr uint64_t kFreeSteps = 1 << 20;

  bool tracked() const { return ranges_ != nullptr; }

  /// A part of the text without raw added tokens.
  void stretch(size_t begin, size_t end) {
    NormalText text(text_.substr(begin, end - begin), begin, tracked());
    if (parts_.normalizer != nullptr) parts_.normalizer->apply(&text, &fuel_);
    scratch_.normalized.clear();
    parts_.added.split(text.view(), true, special_as_text_, &scratch_.normalized);
    const std::vector<AddedTokens::Piece>& pieces = scratch_.normalized;
    if (pieces.size() == 1 && pieces[0].id == Vocabulary::kNoId) {
      words(std::move(text));
      return;
    }
    for (const AddedTokens::Piece& piece : pieces) {
      if (piece.id == Vocabulary::kNoId) {
        words(text.part(piece.begin, piece.end));
      } else {
        emit(piece.id, text.view().substr(piece.begin, piece.end - piece.begin),
             tracked() ? text.origin(piece.begin, piece.end) : Range{});
      }
    }
  }

  void words(NormalText text) {
    Words words;
    words.text = std::move(text);
    words.ranges.push_back(Range{0, static_cast<uint32_t>(words.text.size())});
    if (parts_.splitter.splitter != nullptr) parts_.splitter.splitter->apply(&words, &fuel_);
    const std::string_view view = words.text.view();
    std::vector<Token>& tokens = scratch_.tokens;
    for (const Range& range : words.ranges) {
      tokens.clear();
      parts_.model->encode(view.substr(range.begin, range.end - range.begin), tracked(),
                           scratch_.model.get(), &fuel_, &tokens);
      for (const Token& token : tokens) ids_.push_back(token.id);
      if (tracked()) add_ranges(words.text, range.begin);
    }
  }

  /// Of the tokens of a word, whose ids are there.
  void add_ranges(const NormalText& text, uint32_t word) {
    for (const Token& token : scratch_.tokens) {
      Range origin = text.origin(word + token.bytes.begin, word + token.bytes.end);
      if (post_.trims()) {
        fuel_.spend(parts_.vocabulary->bytes(token.id).size() / 16);
        post_.trim(text_, parts_.vocabulary->spelling(token.id), ranges_->empty(), &origin);
      }
      ranges_->push_back(origin);
    }
  }

  void emit(int32_t id, std::string_view found, Range origin) {
    ids_.push_back(id);
    if (!tracked()) return;
    if (post_.trims()) post_.trim(text_, found, ranges_->empty(), &origin);
    ranges_->push_back(origin);
  }

  const TokenizerParts& parts_;
  const PostProcessor& post_;
  const std::string_view text_;
  const bool special_as_text_;
  EncodeScratch& scratch_;
  std::vector<int32_t>& ids_;
  std::vector<Range>* ranges_;
  Fuel fuel_;
};

void Pipeline::encode(std::string_view text, bool special, bool special_as_text,
                      EncodeScratch* scratch, std::vector<int32_t>* ids,
                      std::vector<Range>* ranges) const {
  if (text.size() > kMaxTextBytes) {
    throw_error(ErrorCode::kLimitExceeded, "the text has ", text.size(), " bytes, more than the ",
                kMaxTextBytes, " allowed");
  }
  if (const size_t wrong = invalid_utf8_at(text); wrong != kValid) {
    throw_error(ErrorCode::kInvalidArgument, "the text is not UTF-8 at byte ", wrong);
  }
  ids->clear();
  if (ranges != nullptr) ranges->clear();
  Run(*this, text, special_as_text, scratch, ids, ranges).all();
  post_processor_.apply(special, ids, ranges);
  if (special) ends_.apply(ids, ranges);
}

}  // namespace headrace::text
