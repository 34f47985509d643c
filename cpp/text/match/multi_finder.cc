#include "text/match/multi_finder.h"

#include <algorithm>
#include <cstring>

namespace headrace::text {

namespace {

constexpr size_t kLeastBlock = 4096;

}  // namespace

MultiFinder::MultiFinder(std::span<const std::string> strings)
    : automaton_(strings, /*reversed=*/true) {
  lengths_.reserve(strings.size());
  for (const std::string& string : strings) {
    lengths_.push_back(static_cast<uint32_t>(string.size()));
    longest_ = std::max(longest_, string.size());
  }
  const auto same_end = [&](const std::string& s) { return s.back() == strings[0].back(); };
  if (std::ranges::all_of(strings, same_end) && !strings.empty()) {
    only_last_byte_ = static_cast<uint8_t>(strings[0].back());
  }
}

std::optional<MultiFinder::Found> MultiFinder::Search::next() {
  if (finder_.empty()) return std::nullopt;
  while (true) {
    while (!starts_.empty()) {
      const auto [begin, string] = starts_.back();
      starts_.pop_back();
      if (begin < at_) continue;
      at_ = begin + finder_.lengths_[string];
      return Found{string, begin, at_};
    }
    if (std::max(at_, block_end_) >= text_.size()) return std::nullopt;
    read_block();
  }
}

void MultiFinder::Search::read_block() {
  const MultiMatch& automaton = finder_.automaton_;
  const size_t begin = std::max(at_, block_end_);
  const size_t size = std::max(kLeastBlock, finder_.longest_);
  block_end_ = begin + std::min(size, text_.size() - begin);
  // What begins in the block ends here at the latest.
  size_t at = block_end_ + std::min(finder_.longest_ - 1, text_.size() - block_end_);
  uint32_t state = 0;
  while (at > begin) {
    if (state == 0 && finder_.only_last_byte_ >= 0) {
      const void* place = memrchr(text_.data() + begin, finder_.only_last_byte_, at - begin);
      if (place == nullptr) return;
      at = static_cast<size_t>(static_cast<const char*>(place) - text_.data()) + 1;
    } else if (state == 0) {
      while (at > begin && automaton.stays(text_[at - 1])) --at;
      if (at == begin) return;
    }
    --at;
    state = automaton.step(state, text_[at]);
    const uint32_t string = automaton.longest_at(state);
    if (string != MultiMatch::kNone && at < block_end_) starts_.emplace_back(at, string);
  }
}

}  // namespace headrace::text
