#include "sample/ngram_index.h"

#include <algorithm>
#include <random>
#include <utility>

namespace headrace {

namespace {

constexpr size_t kInitialBuckets = 16;

// Unknown to whoever writes prompts, so that nobody can choose tokens that collide.
uint64_t salt() {
  static const uint64_t value = [] {
    std::random_device device;
    return (uint64_t{device()} << 32) | device();
  }();
  return value;
}

}  // namespace

size_t NgramIndex::Hash::operator()(size_t place) const {
  uint64_t hash = salt();
  for (const int32_t token : index->tokens_at(place, with_last)) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return hash;
}

bool NgramIndex::Equal::operator()(size_t a, size_t b) const {
  return std::ranges::equal(index->tokens_at(a, with_last), index->tokens_at(b, with_last));
}

NgramIndex::NgramIndex(int32_t n, std::span<const int32_t> tokens)
    : before_(static_cast<size_t>(n) - 1),
      ngrams_(kInitialBuckets, Hash{this, true}, Equal{this, true}),
      contexts_(kInitialBuckets, Hash{this, false}, Equal{this, false}) {
  for (const int32_t token : tokens) append(token);
}

std::span<const int32_t> NgramIndex::tokens_at(size_t place, bool with_last) const {
  return std::span(tokens_).subspan(place - before_, before_ + (with_last ? 1 : 0));
}

void NgramIndex::append(int32_t token) {
  const size_t place = tokens_.size();
  tokens_.push_back(token);
  earlier_.push_back(kNone);
  if (place < before_ || !ngrams_.insert(place).second) return;
  const auto [context, is_new] = contexts_.try_emplace(place, place);
  if (!is_new) earlier_[place] = std::exchange(context->second, place);
}

std::span<const int32_t> NgramIndex::followers() {
  followers_.clear();
  if (tokens_.size() < before_) return followers_;
  const auto context = contexts_.find(tokens_.size());
  if (context == contexts_.end()) return followers_;
  for (size_t place = context->second; place != kNone; place = earlier_[place]) {
    followers_.push_back(tokens_[place]);
  }
  return followers_;
}

}  // namespace headrace
