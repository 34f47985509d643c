#include "sample/ngram_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace headrace {
namespace {

using Ids = std::vector<int32_t>;

std::set<int32_t> followers(NgramIndex& index) {
  std::set<int32_t> out;
  for (const int32_t token : index.followers()) {
    EXPECT_TRUE(out.insert(token).second) << "twice: " << token;
  }
  return out;
}

/// By looking at the whole sequence.
std::set<int32_t> repeats(const Ids& tokens, size_t n) {
  std::set<int32_t> out;
  if (tokens.size() + 1 < n) return out;
  const auto context = tokens.end() - static_cast<ptrdiff_t>(n - 1);
  for (size_t first = 0; first + n <= tokens.size(); ++first) {
    const auto gram = tokens.begin() + static_cast<ptrdiff_t>(first);
    const auto last = gram + static_cast<ptrdiff_t>(n - 1);
    if (std::equal(gram, last, context)) out.insert(*last);
  }
  return out;
}

TEST(NgramIndex, AgreesWithALookAtTheWholeSequence) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const size_t n = 1 + random() % 5;
    const uint32_t vocabulary = 1 + random() % 6;
    Ids tokens;
    for (size_t i = random() % 30; i > 0; --i) {
      tokens.push_back(static_cast<int32_t>(random() % vocabulary));
    }
    NgramIndex index(static_cast<int32_t>(n), tokens);
    for (int i = 0; i < 60; ++i) {
      ASSERT_EQ(followers(index), repeats(tokens, n)) << tokens.size() << " tokens, n " << n;
      tokens.push_back(static_cast<int32_t>(random() % vocabulary));
      index.append(tokens.back());
    }
  }
}

TEST(NgramIndex, ShortSequencesRepeatNothing) {
  NgramIndex pairs(2, {});
  EXPECT_TRUE(pairs.followers().empty());
  pairs.append(7);
  EXPECT_TRUE(pairs.followers().empty());
  pairs.append(7);
  EXPECT_EQ(followers(pairs), (std::set<int32_t>{7}));
  NgramIndex long_ones(64, Ids(63, 1));
  EXPECT_TRUE(long_ones.followers().empty());
  long_ones.append(1);
  EXPECT_EQ(followers(long_ones), (std::set<int32_t>{1}));
}

// Were a token's cost to grow with the sequence, these would not end.
TEST(NgramIndex, WhatRepeatsEndlesslyCostsNoMore) {
  constexpr int32_t kLength = 400000;
  NgramIndex same(3, Ids(kLength, 5));
  EXPECT_EQ(followers(same), (std::set<int32_t>{5}));
  NgramIndex one_context(2, {});
  for (int32_t i = 0; i < kLength; ++i) {
    one_context.append(0);
    one_context.append(1 + i);
  }
  one_context.append(0);
  EXPECT_EQ(one_context.followers().size(), static_cast<size_t>(kLength));
}

}  // namespace
}  // namespace headrace
