#include "text/regex/pattern/char_set.h"

#include <algorithm>

namespace headrace::text {

void CharSet::add(char32_t first, char32_t last) {
  sorted_ = sorted_ && (ranges_.empty() || first > ranges_.back().last + 1);
  ranges_.push_back({first, last});
}

void CharSet::add(const CharSet& other) {
  constexpr size_t kMany = 1u << 16;
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  sorted_ = false;
  if (ranges_.size() > kMany) {
    ranges();
  }
}

const std::vector<CodeRange>& CharSet::ranges() const {
  if (sorted_) {
    return ranges_;
  }
  std::sort(ranges_.begin(), ranges_.end(),
            [](const CodeRange& a, const CodeRange& b) { return a.first < b.first; });
  size_t size = 0;
  for (const CodeRange& range : ranges_) {
    if (size > 0 && range.first <= ranges_[size - 1].last + 1) {
      ranges_[size - 1].last = std::max(ranges_[size - 1].last, range.last);
    } else {
      ranges_[size++] = range;
    }
  }
  ranges_.resize(size);
  sorted_ = true;
  return ranges_;
}

void CharSet::negate() {
  std::vector<CodeRange> gaps;
  char32_t next = 0;
  for (const CodeRange& range : ranges()) {
    if (range.first > next) {
      gaps.push_back({next, range.first - 1});
    }
    next = range.last + 1;
  }
  if (next <= kLastChar) {
    gaps.push_back({next, kLastChar});
  }
  ranges_ = std::move(gaps);
}

void CharSet::intersect(const CharSet& other) {
  std::vector<CodeRange> both;
  const auto& theirs = other.ranges();
  size_t at = 0;
  for (const CodeRange& range : ranges()) {
    while (at < theirs.size() && theirs[at].last < range.first) {
      ++at;
    }
    for (size_t i = at; i < theirs.size() && theirs[i].first <= range.last; ++i) {
      both.push_back(
          {std::max(range.first, theirs[i].first), std::min(range.last, theirs[i].last)});
    }
  }
  ranges_ = std::move(both);
}

bool CharSet::contains(char32_t value) const {
  const auto& all = ranges();
  const auto found = std::partition_point(
      all.begin(), all.end(), [&](const CodeRange& range) { return range.last < value; });
  return found != all.end() && found->first <= value;
}

FastSet::FastSet(const CharSet& set) : ranges_(set.ranges()) {
  for (char32_t value = 0; value < 128; ++value) {
    if (set.contains(value)) {
      ascii_[value >> 6] |= uint64_t{1} << (value & 63);
    }
  }
  uint16_t index = 0;
  for (size_t page = 0; page < first_.size(); ++page) {
    while (index < ranges_.size() && ranges_[index].last < (page << kPageBits)) {
      ++index;
    }
    first_[page] = index;
  }
}

bool FastSet::find(char32_t value) const noexcept {
  const size_t page = value >> kPageBits;
  // The first range of the next page may have begun in this one.
  size_t low = first_[page];
  size_t high = std::min<size_t>(first_[page + 1] + size_t{1}, ranges_.size());
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (ranges_[middle].last < value) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < ranges_.size() && ranges_[low].first <= value;
}

}  // namespace headrace::text
