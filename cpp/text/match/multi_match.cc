#include "text/match/multi_match.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace headrace::text {

MultiMatch::MultiMatch(std::span<const std::string> strings, bool reversed) {
  std::vector<std::string> backwards;
  std::vector<std::string_view> views(strings.begin(), strings.end());
  if (reversed) {
    backwards.reserve(strings.size());
    for (size_t i = 0; i < strings.size(); ++i) {
      views[i] = backwards.emplace_back(strings[i].rbegin(), strings[i].rend());
    }
  }
  std::vector<uint32_t> order(strings.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::sort(order, [&](uint32_t a, uint32_t b) {
    const int compared = views[a].compare(views[b]);
    return compared != 0 ? compared < 0 : a < b;
  });
  add_states(views, order);
  link();
}

void MultiMatch::add_states(const std::vector<std::string_view>& views,
                            const std::vector<uint32_t>& order) {
  struct Node {
    size_t begin, end;  // of `order`: the strings that begin with this state's bytes
  };
  std::vector<Node> level = {{0, order.size()}};
  std::vector<Node> next;
  labels_.push_back('\0');
  for (size_t depth = 0; !level.empty(); ++depth) {
    for (Node node : level) {
      const auto ends_here = [&] { return views[order[node.begin]].size() == depth; };
      longest_.push_back(kNone);
      first_child_.push_back(static_cast<uint32_t>(labels_.size()));
      for (; node.begin < node.end && ends_here(); ++node.begin) {
        longest_.back() = std::min(longest_.back(), order[node.begin]);
      }
      const bool goes_on = node.begin < node.end;
      held_.push_back(goes_on ? static_cast<uint32_t>(depth) : kNone);
      while (node.begin < node.end) {
        const char byte = views[order[node.begin]][depth];
        size_t end = node.begin + 1;
        while (end < node.end && views[order[end]][depth] == byte) ++end;
        labels_.push_back(byte);
        next.push_back({node.begin, end});
        node.begin = end;
      }
    }
    level.swap(next);
    next.clear();
  }
  first_child_.push_back(static_cast<uint32_t>(labels_.size()));
}

void MultiMatch::link() {
  fail_.assign(labels_.size(), 0);
  held_[0] = 0;
  for (uint32_t child = first_child_[0]; child < first_child_[1]; ++child) {
    root_[static_cast<uint8_t>(labels_[child])] = child;
  }
  for (uint32_t state = 0; state < labels_.size(); ++state) {
    for (uint32_t child = first_child_[state]; child < first_child_[state + 1]; ++child) {
      const uint32_t fail = state == 0 ? 0 : step(fail_[state], labels_[child]);
      fail_[child] = fail;
      if (longest_[child] == kNone) longest_[child] = longest_[fail];
      // A string that nothing continues is held no longer than what it ends with.
      if (held_[child] == kNone) held_[child] = held_[fail];
    }
  }
}

uint32_t MultiMatch::child_of(uint32_t state, char byte) const noexcept {
  const uint32_t first = first_child_[state];
  const uint32_t count = first_child_[state + 1] - first;
  if (count == 0) return kNone;
  if (labels_[first] == byte) return first;
  if (count == 1) return kNone;
  const char* labels = labels_.data() + first;
  const auto* place = static_cast<const char*>(std::memchr(labels, byte, count));
  return place == nullptr ? kNone : first + static_cast<uint32_t>(place - labels);
}

size_t MultiMatch::memory_bytes() const noexcept {
  return sizeof(*this) + labels_.size() +
         sizeof(uint32_t) * (first_child_.size() + fail_.size() + longest_.size() + held_.size());
}

}  // namespace headrace::text
