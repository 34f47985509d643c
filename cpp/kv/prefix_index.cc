#include "kv/prefix_index.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/check.h"

namespace headrace {

namespace {

constexpr int32_t low_word(uint64_t bits) { return static_cast<int32_t>(bits & 0xffffffffu); }
constexpr int32_t high_word(uint64_t bits) { return static_cast<int32_t>(bits >> 32); }

}  // namespace

PrefixIndex::PrefixIndex(int32_t num_nodes, int32_t block_size, Hash hash) : hash_(hash) {
  HEADRACE_CHECK(num_nodes >= 0 && block_size > 0, num_nodes, " x ", block_size);
  block_size_ = static_cast<size_t>(block_size);
  const auto n = static_cast<size_t>(num_nodes);
  entries_.resize(n);
  tokens_.resize(n * block_size_);
  buckets_.assign(std::bit_ceil(n + 1), kNone);
}

const PrefixIndex::Entry& PrefixIndex::entry(int32_t node) const {
  HEADRACE_CHECK(node >= 0 && static_cast<size_t>(node) < entries_.size(), "node ", node);
  return entries_[static_cast<size_t>(node)];
}

PrefixIndex::Content PrefixIndex::content(int32_t node) const {
  HEADRACE_CHECK(contains(node), "node ", node);
  return {{tokens_.data() + static_cast<size_t>(node) * block_size_, block_size_},
          entry(node).media};
}

uint64_t PrefixIndex::hash_at(const Place& place, const Content& content) const {
  HEADRACE_CHECK(content.tokens.size() == block_size_, content.tokens.size());
  HEADRACE_CHECK(place.parent == kNone || contains(place.parent), "parent ", place.parent);
  uint64_t seed = 0;
  if (place.parent == kNone) {
    const SequenceIdentity& s = place.sequence;
    seed = hash_(0, std::array{low_word(s.adapter), high_word(s.adapter), s.rope_len});
  } else {
    seed = entry(place.parent).hash;
  }
  for (const MediaItem& item : content.media) {
    seed = hash_(seed, std::array{item.first, item.last});
    for (const uint64_t bits : item.digest) {
      seed = hash_(seed, std::array{low_word(bits), high_word(bits)});
    }
  }
  return hash_(seed, content.tokens);
}

int32_t PrefixIndex::find_hashed(uint64_t hash, const Place& place, const Content& wanted) const {
  int32_t node = buckets_[hash & (buckets_.size() - 1)];
  for (; node != kNone; node = entry(node).next_in_bucket) {
    const Entry& candidate = entry(node);
    if (candidate.hash != hash || candidate.parent != place.parent) continue;
    if (place.parent == kNone && candidate.sequence != place.sequence) continue;
    const Content has = content(node);
    if (std::ranges::equal(has.tokens, wanted.tokens) &&
        std::ranges::equal(has.media, wanted.media)) {
      return node;
    }
  }
  return kNone;
}

int32_t PrefixIndex::find(const Place& place, const Content& content) const {
  return find_hashed(hash_at(place, content), place, content);
}

void PrefixIndex::insert(const Place& place, const Content& content, int32_t node,
                         const MediaItems& owner) {
  const uint64_t hash = hash_at(place, content);
  HEADRACE_CHECK(!contains(node) && node != place.parent, "node ", node);
  HEADRACE_CHECK(find_hashed(hash, place, content) == kNone, "node ", node);
  HEADRACE_CHECK(content.media.empty() || owner != nullptr, "node ", node);
  int32_t* const head = bucket(hash);
  entries_[static_cast<size_t>(node)] = {.hash = hash,
                                         .sequence = place.sequence,
                                         .parent = place.parent,
                                         .next_in_bucket = *head,
                                         .indexed = true,
                                         .owner = content.media.empty() ? nullptr : owner,
                                         .media = content.media};
  *head = node;
  std::ranges::copy(content.tokens, tokens_.begin() + static_cast<std::ptrdiff_t>(
                                                          static_cast<size_t>(node) * block_size_));
  if (place.parent != kNone) ++entries_[static_cast<size_t>(place.parent)].children;
  ++size_;
}

void PrefixIndex::erase(int32_t node) {
  const Entry& gone = entry(node);
  HEADRACE_CHECK(gone.indexed && gone.children == 0, "node ", node);
  int32_t* link = bucket(gone.hash);
  while (*link != node) link = &entries_[static_cast<size_t>(*link)].next_in_bucket;
  *link = gone.next_in_bucket;
  if (gone.parent != kNone) --entries_[static_cast<size_t>(gone.parent)].children;
  entries_[static_cast<size_t>(node)] = {};
  --size_;
}

uint64_t PrefixIndex::hash_tokens(uint64_t seed, std::span<const int32_t> tokens) noexcept {
  constexpr uint64_t kOdd1 = 0x9e3779b97f4a7c15u, kOdd2 = 0xd6e8feb86659fd93u;
  // One-to-one in `hash`: the product carries bits up, the shift brings them down again.
  const auto mix = [](uint64_t hash, uint64_t word) {
    hash = (hash ^ (word * kOdd2)) * kOdd1;
    return hash ^ (hash >> 32);
  };
  const auto bits = [&](size_t i) {
    return static_cast<uint64_t>(static_cast<uint32_t>(tokens[i]));
  };
  const size_t even = tokens.size() / 2 * 2;
  uint64_t hash = mix(seed, tokens.size());
  for (size_t i = 0; i < even; i += 2) hash = mix(hash, bits(i) | bits(i + 1) << 32);
  if (even < tokens.size()) hash = mix(hash, bits(even));
  return mix(mix(hash, kOdd1), kOdd2);
}

}  // namespace headrace
