#include "text/normalize/normal_text.h"

#include <algorithm>

#include "base/check.h"
#include "text/unicode/utf8.h"

namespace headrace::text {
namespace {

/// Before a text of so many bytes gets `added` more.
void check_growth(size_t size, size_t added) {
  if (added > NormalText::kMaxBytes - std::min(size, NormalText::kMaxBytes)) {
    throw_error(ErrorCode::kLimitExceeded, "the tokenizer makes the text longer than ",
                NormalText::kMaxBytes, " bytes");
  }
}

}  // namespace

NormalText::NormalText(std::string_view stretch, size_t offset, bool tracked)
    : text_(stretch), start_(static_cast<uint32_t>(offset)), tracked_(tracked) {
  HEADRACE_CHECK(offset + stretch.size() <= UINT32_MAX, "a text over 4 GiB");
  if (!stretch.empty() && offset == 0) {
    front_ = utf8_size(stretch[0]);
  }
  if (!tracked) {
    return;
  }
  origins_.resize(stretch.size());
  for (size_t at = 0; at < stretch.size();) {
    const size_t end = at + utf8_size(stretch[at]);
    const Range range{static_cast<uint32_t>(offset + at), static_cast<uint32_t>(offset + end)};
    std::fill(origins_.begin() + static_cast<ptrdiff_t>(at),
              origins_.begin() + static_cast<ptrdiff_t>(end), range);
    at = end;
  }
}

NormalText::Writer::Writer(const NormalText& old) : old_(old) {
  text_.reserve(old.size() + old.size() / 8);
  if (old.tracked_) {
    origins_.reserve(text_.capacity());
  }
}

void NormalText::Writer::keep(size_t begin, size_t end) {
  if (begin < old_.front_) {
    front_ = text_.size() + std::min(end, old_.front_) - begin;
  }
  check_growth(text_.size(), end - begin);
  text_.append(old_.text_, begin, end - begin);
  if (old_.tracked_) {
    const auto origins = old_.origins_.begin();
    origins_.insert(origins_.end(), origins + static_cast<ptrdiff_t>(begin),
                    origins + static_cast<ptrdiff_t>(end));
  }
}

void NormalText::Writer::put_as(std::string_view bytes, size_t at) {
  check_growth(text_.size(), bytes.size());
  text_.append(bytes);
  if (at < old_.front_) {
    front_ = text_.size();
  }
  if (old_.tracked_) {
    origins_.insert(origins_.end(), bytes.size(), old_.origins_[at]);
  }
}

void NormalText::Writer::put(std::string_view bytes, size_t, size_t end) {
  if (end > 0) {
    put_as(bytes, end - 1);
    return;
  }
  check_growth(text_.size(), bytes.size());
  text_.append(bytes);
  if (old_.start_ == 0) {
    front_ = text_.size();
  }
  if (old_.tracked_) {
    origins_.insert(origins_.end(), bytes.size(), Range{old_.start_, old_.start_});
  }
}

void NormalText::replace_by(Writer&& writer) {
  text_ = std::move(writer.text_);
  origins_ = std::move(writer.origins_);
  front_ = writer.front_;
}

void NormalText::prepend(std::string_view prefix) {
  if (text_.empty()) {
    return;
  }
  check_growth(text_.size(), prefix.size());
  text_.insert(0, prefix);
  if (front_ > 0) {
    front_ += prefix.size();
  }
  if (tracked_) {
    origins_.insert(origins_.begin(), prefix.size(), Range(origins_.front()));
  }
}

NormalText NormalText::part(size_t begin, size_t end) const {
  NormalText result;
  result.text_.assign(text_, begin, end - begin);
  result.tracked_ = tracked_;
  result.front_ = begin < front_ ? std::min(end, front_) - begin : 0;
  // Untracked, all that matters is whether a part begins where the original does.
  result.start_ = begin < front_ ? 0 : 1;
  if (tracked_) {
    result.origins_.assign(origins_.begin() + static_cast<ptrdiff_t>(begin),
                           origins_.begin() + static_cast<ptrdiff_t>(end));
    result.start_ = begin < end ? origins_[begin].begin : start_;
  }
  return result;
}

Range NormalText::origin(size_t begin, size_t end) const {
  HEADRACE_CHECK(tracked_, "origins weren't asked for");
  HEADRACE_CHECK(begin <= end && end <= origins_.size(), "a range beyond the text");
  if (begin == end) {
    const uint32_t at = begin > 0 ? origins_[begin - 1].end : start_;
    return {at, at};
  }
  return {origins_[begin].begin, origins_[end - 1].end};
}

}  // namespace headrace::text
