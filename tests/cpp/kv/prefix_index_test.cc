#include "kv/prefix_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "headrace/status.h"

namespace headrace {
namespace {

using Tokens = std::vector<int32_t>;
using Content = PrefixIndex::Content;
using Place = PrefixIndex::Place;
constexpr int32_t kNone = PrefixIndex::kNone;
constexpr Place kRoot{};

Place under(int32_t parent) { return {{}, parent}; }
Content holds(const Tokens& tokens) { return {tokens}; }
/// Of this digest; none for 0.
MediaItems one_item(uint64_t digest) {
  std::vector<MediaItem> items;
  if (digest > 0) items.push_back({{digest, 0, 0, 0}, 0, 1});
  return std::make_shared<const std::vector<MediaItem>>(std::move(items));
}

TEST(PrefixIndex, TokensConfirmWhatTheHashFinds) {
  const auto same_hash = [](uint64_t, std::span<const int32_t>) -> uint64_t { return 7; };
  PrefixIndex index(4, 2, same_hash);
  index.insert(kRoot, holds(Tokens{1, 2}), 0);
  index.insert(kRoot, holds(Tokens{1, 3}), 1);
  index.insert(under(0), holds(Tokens{1, 3}), 2);
  EXPECT_EQ(index.find(kRoot, holds(Tokens{1, 2})), 0);
  EXPECT_EQ(index.find(kRoot, holds(Tokens{1, 3})), 1);
  EXPECT_EQ(index.find(under(0), holds(Tokens{1, 3})), 2);
  EXPECT_EQ(index.find(under(1), holds(Tokens{1, 3})), kNone) << "same tokens after another prefix";
  EXPECT_EQ(index.find(kRoot, holds(Tokens{2, 1})), kNone);
  EXPECT_EQ(index.find({{.adapter = 9}, kNone}, holds(Tokens{1, 2})), kNone) << "another adapter";
}

TEST(PrefixIndex, EveryPartOfAnIdentityConfirmsWhatTheHashFinds) {
  const auto same_hash = [](uint64_t, std::span<const int32_t>) -> uint64_t { return 7; };
  PrefixIndex index(8, 2, same_hash);
  const Tokens tokens = {1, 1};
  const std::vector<MediaItem> known = {{{1, 2, 3, 4}, 0, 2}};
  const auto owner = std::make_shared<const std::vector<MediaItem>>(known);
  index.insert(kRoot, {tokens}, 0);
  index.insert(kRoot, {tokens, *owner}, 1, owner);
  index.insert({{.adapter = 1}, kNone}, {tokens}, 2);
  index.insert({{.adapter = 1, .rope_len = 9}, kNone}, {tokens}, 3);
  EXPECT_EQ(index.find(kRoot, {tokens}), 0);
  EXPECT_EQ(index.find(kRoot, {tokens, known}), 1);
  EXPECT_EQ(index.find({{.adapter = 1}, kNone}, {tokens}), 2);
  EXPECT_EQ(index.find({{.adapter = 1, .rope_len = 9}, kNone}, {tokens}), 3);
  EXPECT_EQ(index.find({{.adapter = uint64_t{1} << 32}, kNone}, {tokens}), kNone);
  EXPECT_EQ(index.find({{.rope_len = 9}, kNone}, {tokens}), kNone);
  for (size_t word = 0; word < 4; ++word) {
    std::vector<MediaItem> other = known;
    other[0].digest[word] ^= uint64_t{1} << 63;
    EXPECT_EQ(index.find(kRoot, {tokens, other}), kNone) << "word " << word;
  }
  EXPECT_EQ(index.find(kRoot, {tokens, std::vector<MediaItem>{{{1, 2, 3, 4}, 0, 3}}}), kNone);
  EXPECT_EQ(index.find(kRoot, {tokens, std::vector<MediaItem>{{{1, 2, 3, 4}, 1, 2}}}), kNone);
}

TEST(PrefixIndex, HoldsMediaUntilTheBlockIsErased) {
  PrefixIndex index(2, 1);
  auto owner =
      std::make_shared<const std::vector<MediaItem>>(std::vector<MediaItem>{{{1, 0, 0, 0}, 1, 2}});
  const Tokens first = {5}, second = {6};
  index.insert(kRoot, {first}, 0, owner);
  EXPECT_EQ(owner.use_count(), 1) << "a block without media holds none";
  index.insert(under(0), {second, *owner}, 1, owner);
  EXPECT_EQ(owner.use_count(), 2);
  index.erase(1);
  EXPECT_EQ(owner.use_count(), 1);
}

TEST(PrefixIndex, MisuseIsCaught) {
  PrefixIndex index(4, 2);
  index.insert(kRoot, holds(Tokens{1, 2}), 0);
  index.insert(under(0), holds(Tokens{3, 4}), 1);
  EXPECT_THROW(index.insert(kRoot, holds(Tokens{1, 2}), 2), InternalError) << "known already";
  EXPECT_THROW(index.insert(kRoot, holds(Tokens{5, 5}), 1), InternalError) << "in use";
  EXPECT_THROW(index.insert(under(3), holds(Tokens{5, 5}), 2), InternalError) << "unknown parent";
  EXPECT_THROW(index.find(kRoot, holds(Tokens{1})), InternalError);
  const std::vector<MediaItem> item = {{{1, 0, 0, 0}, 0, 1}};
  EXPECT_THROW(index.insert(kRoot, {Tokens{8, 8}, item}, 2), InternalError) << "nobody owns it";
  EXPECT_THROW(index.erase(0), InternalError) << "would leave a hole";
  EXPECT_THROW(index.erase(2), InternalError);
  EXPECT_THROW(index.erase(4), InternalError);
  index.erase(1);
  index.erase(0);
  EXPECT_EQ(index.size(), 0);
}

TEST(PrefixIndex, HashSpreadsSimilarChains) {
  std::set<uint64_t> hashes, low_bits;
  for (int32_t a = 0; a < 64; ++a) {
    for (int32_t b = 0; b < 64; ++b) {
      const uint64_t hash = PrefixIndex::hash_tokens(0, Tokens{a, b, 0, a});
      hashes.insert(hash);
      low_bits.insert(hash & 0xffff);
    }
  }
  EXPECT_EQ(hashes.size(), 4096u);
  // 4096 balls into 65536 boxes: about 3970 boxes are hit, give or take 12.
  EXPECT_GT(low_bits.size(), 3900u);
  EXPECT_NE(PrefixIndex::hash_tokens(0, Tokens{0}), PrefixIndex::hash_tokens(0, Tokens{0, 0}));
  EXPECT_NE(PrefixIndex::hash_tokens(0, Tokens{5}), PrefixIndex::hash_tokens(1, Tokens{5}));
  EXPECT_NE(PrefixIndex::hash_tokens(0, Tokens{1, 2}), PrefixIndex::hash_tokens(0, Tokens{2, 1}));
}

TEST(PrefixIndex, AgreesWithAMap) {
  const auto weak_hash = [](uint64_t seed, std::span<const int32_t> tokens) -> uint64_t {
    return (seed + static_cast<uint64_t>(tokens[0])) % 3;
  };
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const auto below = [&](int64_t n) {
      return static_cast<int32_t>(random() % static_cast<uint64_t>(n));
    };
    const int32_t n = 1 + below(20);
    PrefixIndex index = seed % 2 ? PrefixIndex(n, 2) : PrefixIndex(n, 2, weak_hash);
    using Key = std::tuple<uint64_t, int32_t, Tokens, uint64_t>;  // the last: of an item, 0: none
    std::map<Key, int32_t> known;
    std::map<int32_t, Key> key_of;
    for (int step = 0; step < 150; ++step) {
      const int32_t block = below(n);
      if (key_of.contains(block) && index.children(block) == 0 && below(2) == 0) {
        known.erase(key_of[block]);
        key_of.erase(block);
        index.erase(block);
      }
      const int32_t parent =
          below(3) == 0 || key_of.empty()
              ? kNone
              : std::next(key_of.begin(), below(static_cast<int64_t>(key_of.size())))->first;
      // Below the root the adapter is the chain's.
      const uint64_t adapter = parent == kNone ? random() % 2 : std::get<0>(key_of[parent]);
      const Tokens tokens = {below(3), below(3)};
      const uint64_t digest = random() % 3;
      const MediaItems media = one_item(digest);
      const auto key = std::make_tuple(adapter, parent, tokens, digest);
      const Place place = {{.adapter = adapter}, parent};
      const Content content = {tokens, *media};
      const auto found = known.find(key);
      ASSERT_EQ(index.find(place, content), found == known.end() ? kNone : found->second);
      if (found == known.end() && !key_of.contains(block)) {
        index.insert(place, content, block, media);
        known[key] = block;
        key_of[block] = key;
      }
      ASSERT_EQ(index.size(), static_cast<int32_t>(known.size()));
      for (const auto& [b, its_key] : key_of) {
        const auto& [its_adapter, its_parent, its_tokens, its_digest] = its_key;
        ASSERT_TRUE(index.contains(b));
        ASSERT_EQ(index.parent(b), its_parent);
        ASSERT_TRUE(std::ranges::equal(index.content(b).tokens, its_tokens));
        const MediaItems its_media = one_item(its_digest);
        ASSERT_EQ(index.find({{.adapter = its_adapter}, its_parent}, {its_tokens, *its_media}), b);
        const auto children = std::count_if(key_of.begin(), key_of.end(), [&](const auto& other) {
          return std::get<1>(other.second) == b;
        });
        ASSERT_EQ(index.children(b), children);
      }
    }
  }
}

}  // namespace
}  // namespace headrace
