#include "spec/prompt_lookup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace headrace {
namespace {

using Tokens = std::vector<int32_t>;

Tokens guess(const PromptLookup& lookup, int32_t count) {
  Tokens out = {-1};
  lookup.guess(count, out);
  return out;
}

TEST(PromptLookup, GoesOnAsBefore) {
  PromptLookup lookup(2, 4, Tokens{1, 2, 3, 4, 5, 9, 1, 2});
  EXPECT_EQ(guess(lookup, 3), (Tokens{3, 4, 5}));
  EXPECT_EQ(guess(lookup, 0), Tokens{});
  lookup.append(7);
  EXPECT_EQ(guess(lookup, 3), Tokens{});
}

TEST(PromptLookup, TheLongestMatchWinsThenTheLatest) {
  const PromptLookup longest(1, 3, Tokens{1, 2, 3, 50, 8, 2, 3, 60, 4, 1, 2, 3});
  EXPECT_EQ(guess(longest, 1), Tokens{50});
  const PromptLookup latest(1, 2, Tokens{1, 2, 3, 50, 8, 2, 3, 60, 4, 1, 2, 3});
  EXPECT_EQ(guess(latest, 1), Tokens{60});
}

TEST(PromptLookup, ALoopIsRepeated) {
  const PromptLookup lookup(2, 4, Tokens{7, 8, 9, 7, 8, 9, 7});
  EXPECT_EQ(guess(lookup, 8), (Tokens{8, 9, 7, 8, 9, 7, 8, 9}));
}

TEST(PromptLookup, ShortTextsHaveNoMatch) {
  PromptLookup lookup(3, 3, {});
  for (const int32_t token : {4, 4, 4}) {
    EXPECT_EQ(guess(lookup, 2), Tokens{});
    lookup.append(token);
  }
  lookup.append(4);
  EXPECT_EQ(guess(lookup, 2), (Tokens{4, 4}));
}

/// The same, by looking at every place.
Tokens search(const Tokens& text, int32_t min_ngram, int32_t max_ngram, int32_t count) {
  const auto size = static_cast<int32_t>(text.size());
  int32_t best = -1, best_length = min_ngram - 1;
  for (int32_t end = size - 1; end >= min_ngram; --end) {
    int32_t length = 0;
    while (length < std::min(end, max_ngram) && text[static_cast<size_t>(end - 1 - length)] ==
                                                    text[static_cast<size_t>(size - 1 - length)]) {
      ++length;
    }
    if (length > best_length) {
      best = end;
      best_length = length;
    }
  }
  Tokens out = text;
  for (int32_t i = 0; best >= 0 && i < count; ++i)
    out.push_back(out[static_cast<size_t>(best + i)]);
  out.erase(out.begin(), out.begin() + size);
  return out;
}

TEST(PromptLookup, AgreesWithASearchOfTheWholeText) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const auto min_ngram = static_cast<int32_t>(2 + random() % 3);
    const auto max_ngram = min_ngram + static_cast<int32_t>(random() % 3);
    const uint32_t vocab = 20 + random() % 200;  // few enough repeats for all to be looked at
    Tokens text;
    PromptLookup lookup(min_ngram, max_ngram, text);
    for (int i = 0; i < 600; ++i) {
      text.push_back(static_cast<int32_t>(random() % vocab));
      lookup.append(text.back());
      EXPECT_EQ(guess(lookup, 4), search(text, min_ngram, max_ngram, 4));
    }
  }
}

}  // namespace
}  // namespace headrace
