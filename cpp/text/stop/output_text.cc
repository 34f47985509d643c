#include <cstdint>
#include <deque>
#include <utility>

#include "headrace/text_output.h"
#include "text/stop/stop_strings.h"

namespace headrace {

class OutputText::Impl {
 public:
  Impl(Detokenizer detokenizer, const std::optional<StopStrings>& stops,
       const OutputTextOptions& options)
      : detokenizer_(std::move(detokenizer)), options_(options) {
    if (!stops) return;
    stop_.emplace(*stops, options.keeps_string);
    if (cuts()) fresh_ = detokenizer_;
  }

  std::string push(int32_t id, bool has_text) {
    if (match()) return "";
    ++count_;
    std::string text = has_text ? detokenizer_.push(id) : "";
    if (!stop_) return text;
    ++open_;
    if (has_text && cuts()) ids_.push_back(id);
    return search(text, /*last=*/false);
  }

  std::string finish() {
    if (match()) return "";
    std::string text = detokenizer_.finish();
    return stop_ ? search(text, /*last=*/true) : text;
  }

  const std::optional<StopMatch>& match() const noexcept { return stop_ ? stop_->match() : none_; }
  size_t released() const noexcept { return stop_ ? released_ : count_; }

 private:
  bool cuts() const noexcept { return options_.cuts_tokens && !options_.keeps_string; }
  std::string search(const std::string& text, bool last);
  size_t kept();

  Detokenizer detokenizer_;
  const OutputTextOptions options_;
  const std::optional<StopMatch> none_;
  std::optional<text::StopText> stop_;
  size_t count_ = 0;  ///< tokens pushed
  size_t released_ = 0;
  // With stop strings alone:
  std::deque<size_t> ends_;  ///< where the texts of the tokens held back end
  size_t open_ = 0;          ///< tokens after those: where their text ends isn't known yet
  // Where tokens are cut:
  Detokenizer fresh_;
  std::vector<int32_t> ids_;  ///< every token with text
  std::string text_;          ///< all that came
};

std::string OutputText::Impl::search(const std::string& text, bool last) {
  if (cuts()) text_ += text;
  std::string settled;
  const bool may_stop = count_ >= options_.min_tokens;
  last ? stop_->finish(text, may_stop, &settled) : stop_->push(text, may_stop, &settled);
  if (stop_->match()) {
    released_ = cuts() ? kept() : count_;
    return settled;
  }
  if (last || !detokenizer_.holding()) {
    ends_.insert(ends_.end(), std::exchange(open_, 0), stop_->length());
  }
  while (!ends_.empty() && ends_.front() <= stop_->settled()) {
    ends_.pop_front();
    ++released_;
  }
  return settled;
}

/// released(), once a stop string has been found: detokenizes once more, and sees after each token
/// whether the text would be one of the output's beginnings if it ended there.
size_t OutputText::Impl::kept() {
  // To see that takes work in proportion to the tokens whose text is held. So that all of it grows
  // with the tokens alone, behind many such tokens it is seen only now and then.
  constexpr size_t kWork = 1u << 20;
  constexpr size_t kWorkPerToken = 32;
  const std::string_view whole = std::string_view(text_).substr(0, stop_->end());
  size_t best = released_;
  size_t length = 0;
  size_t unsettled = 0;
  size_t work = kWork;
  for (size_t i = 0; i < ids_.size(); ++i) {
    const size_t settled = fresh_.push(ids_[i]).size();
    length += settled;
    unsettled = settled > 0 ? 1 : unsettled + 1;
    work += kWorkPerToken;
    if (length > whole.size()) break;
    if (i < released_) continue;
    std::string held;
    if (fresh_.holding()) {
      if (unsettled > work) continue;
      work -= unsettled;
      held = Detokenizer(fresh_).finish();
    }
    if (whole.substr(length).starts_with(held)) best = i + 1;
  }
  return best;
}

OutputText::OutputText(Detokenizer detokenizer, std::optional<StopStrings> stops,
                       const OutputTextOptions& options)
    : impl_(std::make_unique<Impl>(std::move(detokenizer), stops, options)) {}
OutputText::~OutputText() = default;
OutputText::OutputText(OutputText&& other) noexcept = default;
OutputText& OutputText::operator=(OutputText&& other) noexcept = default;

std::string OutputText::push(int32_t id, bool has_text) { return impl_->push(id, has_text); }
std::string OutputText::finish() { return impl_->finish(); }
const std::optional<StopMatch>& OutputText::match() const noexcept { return impl_->match(); }
size_t OutputText::released() const noexcept { return impl_->released(); }

}  // namespace headrace
