#include "text/files/sentencepiece/piece_normalizer.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "headrace/status.h"
#include "text/unicode/utf8.h"

namespace headrace::text {

namespace {

constexpr std::string_view kEscapedSpace = "\u2581";
constexpr size_t kMaxGrowth = 64;      ///< of a text by its normalizer
constexpr size_t kAllowedGrowth = 64;  ///< in any case: of an empty text, the prefix
constexpr size_t kNormalizerStepsOfFuel = 8;
/// No rule is nearly as long; a hostile charsmap may lead on and on.
constexpr size_t kMaxRuleBytes = 256;

}  // namespace

/// One text's way through. The result is kept in pieces with what each came from, because spaces at
/// its end are dropped again.
class PieceNormalizer::Pass {
 public:
  Pass(const PieceNormalizer& rules, const NormalText& text, Fuel* fuel)
      : rules_(rules),
        spaces_(rules.spaces_),
        input_(text.view()),
        limit_(std::min(input_.size() * kMaxGrowth + kAllowedGrowth, NormalText::kMaxBytes)),
        continues_(spaces_.first_stretch_only && !text.begins_text()),
        tracked_(text.tracked()),
        fuel_(*fuel) {}

  /// False: nothing is left of the text.
  bool run() {
    size_t at = leading_spaces();
    if (at == input_.size()) {
      return false;
    }
    result_.reserve(input_.size() + input_.size() / 2 + kEscapedSpace.size());
    if (spaces_.add_dummy_prefix && !spaces_.whitespace_as_suffix && !continues_) {
      add(space(), at, at);
    }
    after_space_ = spaces_.remove_extra_whitespaces && !continues_;
    const bool plain = !rules_.rules_.has_value() && rules_.user_defined_.empty();
    while (at < input_.size()) {
      at = plain ? plain_stretch(at) : step(at);
    }
    if (spaces_.remove_extra_whitespaces) {
      drop_trailing_spaces();
    }
    if (spaces_.add_dummy_prefix && spaces_.whitespace_as_suffix) {
      add(space(), input_.size(), input_.size());
    }
    return true;
  }

  void write(NormalText::Writer* out) const {
    if (!tracked_) {
      out->put(result_, 0, input_.size());
      return;
    }
    size_t at = 0;
    for (const Part& part : parts_) {
      const std::string_view text = std::string_view(result_).substr(at, part.end - at);
      if (text == input_.substr(part.from, part.to - part.from)) {
        out->keep(part.from, part.to);
      } else if (part.to == part.from) {
        out->put(text, part.from, part.to);
      } else if (!text.empty()) {
        // From all of them: the first byte from the first character, the last from the last.
        out->put_as(text.substr(0, 1), part.from);
        out->put(text.substr(1), part.from, part.to);
      }
      at = part.end;
    }
  }

 private:
  struct Part {
    size_t end;  ///< of the result
    size_t from, to;
  };

  std::string_view space() const { return spaces_.escape_whitespaces ? kEscapedSpace : " "; }

  /// What stands at `at`, and its size in the input.
  std::string_view next(size_t at, size_t* size) const {
    const std::string_view rest = input_.substr(at);
    size_t steps = 0;
    const auto piece = rules_.user_defined_.longest(rest, &steps);
    fuel_.spend(1 + steps / kNormalizerStepsOfFuel);
    if (piece.size > 0) {
      *size = piece.size;
      return rest.substr(0, piece.size);
    }
    if (rules_.rules_.has_value() && rules_.rules_->begins(rest[0])) {
      const auto rule = rules_.rules_->longest(rest.substr(0, kMaxRuleBytes));
      if (rule.has_value()) {
        fuel_.spend(1 + rule->content.size() / kNormalizerStepsOfFuel);
        *size = rule->size;
        return rule->content;
      }
    }
    *size = std::min(utf8_size(rest[0]), rest.size());
    return rest.substr(0, *size);
  }

  size_t leading_spaces() const {
    size_t at = 0;
    size_t size = 0;
    while (spaces_.remove_extra_whitespaces && !continues_ && at < input_.size() &&
           next(at, &size) == " ") {
      at += size;
    }
    return at;
  }

  /// The end of what no rule changes, up to the next space.
  size_t unchanged_end(size_t at) const {
    size_t work = 0;
    while (at < input_.size() && input_[at] != ' ') {
      const std::string_view rest = input_.substr(at);
      size_t steps = 0;
      if (!rules_.user_defined_.empty() && rules_.user_defined_.longest(rest, &steps).size > 0) {
        break;
      }
      if (rules_.rules_.has_value() && rules_.rules_->begins(rest[0]) &&
          rules_.rules_->longest(rest.substr(0, kMaxRuleBytes)).has_value()) {
        break;
      }
      work += 1 + steps / kNormalizerStepsOfFuel;
      at += std::min(utf8_size(rest[0]), rest.size());
    }
    fuel_.spend(work);
    return at;
  }

  size_t step(size_t at) {
    const size_t end = unchanged_end(at);
    if (end > at) {
      add(input_.substr(at, end - at), at, end);
      after_space_ = false;
      return end;
    }
    size_t size = 0;
    std::string_view text = next(at, &size);
    const bool kept = text.data() == input_.data() + at;
    while (after_space_ && text.starts_with(' ')) {
      text.remove_prefix(1);
    }
    if (!text.empty()) {
      add_escaped(text, kept, at, at + size);
      after_space_ = spaces_.remove_extra_whitespaces && text.ends_with(' ');
    }
    return at + size;
  }

  /// Without rules: a run without spaces, or of spaces.
  size_t plain_stretch(size_t at) {
    size_t end = std::min(input_.find(' ', at), input_.size());
    if (end > at) {
      add(input_.substr(at, end - at), at, end);
      after_space_ = false;
    }
    for (; end < input_.size() && input_[end] == ' '; ++end) {
      if (!after_space_) {
        add(space(), end, end + 1);
        after_space_ = spaces_.remove_extra_whitespaces;
      }
    }
    fuel_.spend(end - at);
    return end;
  }

  /// `kept`: the text is the input's own, and each part comes from where it stands.
  void add_escaped(std::string_view text, bool kept, size_t from, size_t to) {
    while (!text.empty()) {
      const size_t run = std::min(text.find(' '), text.size());
      const size_t size = std::max<size_t>(run, 1);
      if (kept) {
        from = static_cast<size_t>(text.data() - input_.data());
        to = from + size;
      }
      add(run > 0 ? text.substr(0, run) : space(), from, to);
      text.remove_prefix(size);
    }
  }

  void add(std::string_view text, size_t from, size_t to) {
    if (result_.size() + text.size() > limit_) {
      throw_error(ErrorCode::kLimitExceeded, "the tokenizer's normalizer makes a text more than ",
                  kMaxGrowth, " times longer");
    }
    result_.append(text);
    if (tracked_) {
      parts_.push_back({result_.size(), from, to});
    }
  }

  void drop_trailing_spaces() {
    while (result_.ends_with(space())) {
      result_.resize(result_.size() - space().size());
    }
    while (parts_.size() > 1 && parts_[parts_.size() - 2].end >= result_.size()) {
      parts_.pop_back();
    }
    if (!parts_.empty()) {
      parts_.back().end = result_.size();
    }
  }

  const PieceNormalizer& rules_;
  const SpaceRules& spaces_;
  std::string_view input_;
  size_t limit_;
  const bool continues_;  ///< as if behind a letter
  const bool tracked_;
  Fuel& fuel_;
  std::string result_;
  std::vector<Part> parts_;
  bool after_space_ = false;
};

PieceNormalizer::PieceNormalizer(const Vocabulary& vocabulary, std::string_view charsmap,
                                 const SpaceRules& spaces)
    : user_defined_(vocabulary), spaces_(spaces) {
  if (!charsmap.empty()) {
    rules_.emplace(charsmap);
  }
}

void PieceNormalizer::apply(NormalText* text, Fuel* fuel) const {
  Pass pass(*this, *text, fuel);
  NormalText::Writer out(*text);
  if (pass.run()) {
    pass.write(&out);
  }
  text->replace_by(std::move(out));
}

}  // namespace headrace::text
