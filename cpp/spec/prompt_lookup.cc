#include "spec/prompt_lookup.h"

#include <algorithm>

#include "base/check.h"

namespace headrace {

PromptLookup::PromptLookup(int32_t min_ngram, int32_t max_ngram, std::span<const int32_t> tokens)
    : min_ngram_(static_cast<size_t>(min_ngram)), max_ngram_(max_ngram), latest_(64, kNone) {
  HEADRACE_CHECK(min_ngram >= 1 && min_ngram <= max_ngram, min_ngram, " .. ", max_ngram);
  earlier_.push_back(kNone);
  for (const int32_t token : tokens) append(token);
}

size_t PromptLookup::bucket_of(size_t end) const {
  uint64_t hash = 0;
  for (size_t i = end - min_ngram_; i < end; ++i) {
    hash = (hash ^ static_cast<uint32_t>(tokens_[i])) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash & (latest_.size() - 1);
}

void PromptLookup::append(int32_t token) {
  // The place before the new token is known to have a token behind it only now.
  const size_t end = tokens_.size();
  tokens_.push_back(token);
  earlier_.push_back(kNone);
  if (end < min_ngram_) return;
  if (end >= latest_.size()) return rehash();
  int32_t& latest = latest_[bucket_of(end)];
  earlier_[end] = latest;
  latest = static_cast<int32_t>(end);
}

void PromptLookup::rehash() {
  latest_.assign(4 * latest_.size(), kNone);
  for (size_t end = min_ngram_; end < tokens_.size(); ++end) {
    int32_t& latest = latest_[bucket_of(end)];
    earlier_[end] = latest;
    latest = static_cast<int32_t>(end);
  }
}

/// Tokens before `end` that equal the last ones, at most max_ngram.
int32_t PromptLookup::match_length(size_t end) const {
  const size_t most = std::min(end, static_cast<size_t>(max_ngram_));
  size_t length = 0;
  while (length < most && tokens_[end - 1 - length] == tokens_[tokens_.size() - 1 - length]) {
    ++length;
  }
  return static_cast<int32_t>(length);
}

void PromptLookup::guess(int32_t count, std::vector<int32_t>& out) const {
  out.clear();
  if (count <= 0 || tokens_.size() <= min_ngram_) return;
  size_t best = 0;
  auto best_length = static_cast<int32_t>(min_ngram_) - 1;
  int32_t place = latest_[bucket_of(tokens_.size())];
  for (int tried = 0; place != kNone && tried < kMaxCandidates; ++tried) {
    const auto end = static_cast<size_t>(place);
    const int32_t length = match_length(end);
    if (length > best_length) {
      best = end;
      best_length = length;
    }
    if (best_length == max_ngram_) break;
    place = earlier_[end];
  }
  if (best == 0) return;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const size_t from = best + i;
    out.push_back(from < tokens_.size() ? tokens_[from] : out[from - tokens_.size()]);
  }
}

}  // namespace headrace
