#include "kv/prefix_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "headrace/status.h"

namespace headrace {
namespace {

using Tokens = std::vector<int32_t>;
constexpr int32_t kNone = PrefixIndex::kNone;

TEST(PrefixIndex, TokensConfirmWhatTheHashFinds) {
  const auto same_hash = [](uint64_t, std::span<const int32_t>) -> uint64_t { return 7; };
  PrefixIndex index(4, 2, same_hash);
  index.insert({0, kNone}, Tokens{1, 2}, 0);
  index.insert({0, kNone}, Tokens{1, 3}, 1);
  index.insert({0, 0}, Tokens{1, 3}, 2);
  EXPECT_EQ(index.find({0, kNone}, Tokens{1, 2}), 0);
  EXPECT_EQ(index.find({0, kNone}, Tokens{1, 3}), 1);
  EXPECT_EQ(index.find({0, 0}, Tokens{1, 3}), 2);
  EXPECT_EQ(index.find({0, 1}, Tokens{1, 3}), kNone) << "same tokens after another prefix";
  EXPECT_EQ(index.find({0, kNone}, Tokens{2, 1}), kNone);
  EXPECT_EQ(index.find({9, kNone}, Tokens{1, 2}), kNone) << "another namespace";
}

TEST(PrefixIndex, MisuseIsCaught) {
  PrefixIndex index(4, 2);
  index.insert({0, kNone}, Tokens{1, 2}, 0);
  index.insert({0, 0}, Tokens{3, 4}, 1);
  EXPECT_THROW(index.insert({0, kNone}, Tokens{1, 2}, 2), InternalError) << "known already";
  EXPECT_THROW(index.insert({0, kNone}, Tokens{5, 5}, 1), InternalError) << "in use";
  EXPECT_THROW(index.insert({0, 3}, Tokens{5, 5}, 2), InternalError) << "unknown parent";
  EXPECT_THROW(index.find({0, kNone}, Tokens{1}), InternalError);
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
    std::map<std::tuple<uint64_t, int32_t, Tokens>, int32_t> known;
    std::map<int32_t, std::tuple<uint64_t, int32_t, Tokens>> key_of;
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
      // Below the root the namespace is the chain's.
      const uint64_t space = parent == kNone ? random() % 2 : std::get<0>(key_of[parent]);
      const Tokens tokens = {below(3), below(3)};
      const auto key = std::make_tuple(space, parent, tokens);
      const auto found = known.find(key);
      ASSERT_EQ(index.find({space, parent}, tokens), found == known.end() ? kNone : found->second);
      if (found == known.end() && !key_of.contains(block)) {
        index.insert({space, parent}, tokens, block);
        known[key] = block;
        key_of[block] = key;
      }
      ASSERT_EQ(index.size(), static_cast<int32_t>(known.size()));
      for (const auto& [b, its_key] : key_of) {
        const auto& [its_space, its_parent, its_tokens] = its_key;
        ASSERT_TRUE(index.contains(b));
        ASSERT_EQ(index.parent(b), its_parent);
        ASSERT_TRUE(std::ranges::equal(index.tokens(b), its_tokens));
        ASSERT_EQ(index.find({its_space, its_parent}, its_tokens), b);
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
