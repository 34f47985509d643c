#include "text/match/multi_match.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "text/match/multi_finder.h"

namespace headrace::text {
namespace {

using Strings = std::vector<std::string>;

std::string random_string(std::mt19937* random, size_t least, size_t most, int letters) {
  const size_t size = least + (*random)() % (most - least + 1);
  std::string text(size, 'a');
  for (char& c : text) c = static_cast<char>('a' + (*random)() % static_cast<uint32_t>(letters));
  return text;
}

Strings random_strings(std::mt19937* random, int letters) {
  Strings strings(1 + (*random)() % 6);
  for (std::string& string : strings) string = random_string(random, 1, 6, letters);
  return strings;
}

/// The string of a text's end that is the longest, of equal ones the first.
uint32_t naive_longest(std::string_view text, const Strings& strings) {
  uint32_t best = MultiMatch::kNone;
  for (uint32_t i = 0; i < strings.size(); ++i) {
    const bool longer = best == MultiMatch::kNone || strings[i].size() > strings[best].size();
    if (longer && text.ends_with(strings[i])) best = i;
  }
  return best;
}

/// The longest end of a text that is the start of a string, but not all of it.
size_t naive_held(std::string_view text, const Strings& strings) {
  size_t held = 0;
  for (const std::string& string : strings) {
    for (size_t size = 1; size < string.size(); ++size) {
      if (text.ends_with(std::string_view(string).substr(0, size))) held = std::max(held, size);
    }
  }
  return held;
}

TEST(MultiMatchTest, StepsAsANaiveSearchDoes) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const int letters = 1 + round % 4;
    const Strings strings = random_strings(&random, letters);
    const MultiMatch match(strings);
    const std::string text = random_string(&random, 0, 40, letters + 1);
    uint32_t state = 0;
    for (size_t end = 1; end <= text.size(); ++end) {
      state = match.step(state, text[end - 1]);
      const std::string_view read = std::string_view(text).substr(0, end);
      ASSERT_EQ(match.longest_at(state), naive_longest(read, strings)) << read;
      ASSERT_EQ(match.held(state), naive_held(read, strings)) << read;
    }
  }
}

TEST(MultiMatchTest, ManyChildrenAndAllBytes) {
  Strings strings;
  for (int byte = 0; byte < 256; ++byte) strings.push_back({'x', static_cast<char>(byte)});
  const MultiMatch match(strings);
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const uint32_t state = match.step(match.step(0, 'x'), static_cast<char>(byte));
    EXPECT_EQ(match.longest_at(state), byte);
  }
}

TEST(MultiMatchTest, NoStrings) {
  const MultiMatch match(Strings{});
  EXPECT_TRUE(match.empty());
  EXPECT_EQ(match.longest_at(match.step(0, 'a')), MultiMatch::kNone);
  const MultiFinder finder;
  EXPECT_FALSE(MultiFinder::Search(finder, "abc").next());
}

struct Place {
  uint32_t string;
  size_t begin;
  friend bool operator==(const Place&, const Place&) = default;
};

std::vector<Place> naive_places(std::string_view text, const Strings& strings) {
  std::vector<Place> places;
  for (size_t at = 0; at < text.size();) {
    uint32_t best = MultiMatch::kNone;
    for (uint32_t i = 0; i < strings.size(); ++i) {
      const bool longer = best == MultiMatch::kNone || strings[i].size() > strings[best].size();
      if (longer && text.substr(at).starts_with(strings[i])) best = i;
    }
    if (best != MultiMatch::kNone) places.push_back({best, at});
    at += best == MultiMatch::kNone ? 1 : strings[best].size();
  }
  return places;
}

std::vector<Place> places(std::string_view text, const Strings& strings) {
  const MultiFinder finder(strings);
  MultiFinder::Search search(finder, text);
  std::vector<Place> places;
  while (const auto found = search.next()) {
    EXPECT_EQ(found->end, found->begin + strings[found->string].size());
    places.push_back({found->string, found->begin});
  }
  return places;
}

TEST(MultiFinderTest, FindsAsANaiveSearchDoes) {
  std::mt19937 random(2);
  for (int round = 0; round < 600; ++round) {
    const int letters = 1 + round % 4;
    const Strings strings = random_strings(&random, letters);
    const std::string text = random_string(&random, 0, 60, letters + round % 2);
    ASSERT_EQ(places(text, strings), naive_places(text, strings)) << text;
  }
}

TEST(MultiFinderTest, FindsAcrossBlocks) {
  std::mt19937 random(3);
  for (int round = 0; round < 6; ++round) {
    Strings strings = random_strings(&random, 2);
    strings.push_back(random_string(&random, 3000, 6000, 1) + "b");
    strings.push_back(random_string(&random, 20, 60, 1));
    std::string text;
    while (text.size() < 20000) {
      text += random() % 3 == 0 ? strings[random() % strings.size()]
                                : std::string(random() % 900, "xab"[random() % 3]);
    }
    ASSERT_EQ(places(text, strings), naive_places(text, strings));
  }
}

TEST(MultiFinderTest, ALongStringThatAlmostMatchesCostsNothing) {
  // Tried at each place, it would take 10^10 steps.
  std::string almost(100'000, 'a');
  almost.push_back('b');
  const Strings strings = {"a", almost};
  const std::string text(100'000, 'a');
  EXPECT_EQ(places(text, strings).size(), text.size());
}

TEST(MultiFinderTest, ManyStringsStaySmall) {
  Strings strings;
  size_t bytes = 0;
  for (int i = 0; i < 20'000; ++i) {
    strings.push_back("<|reserved_special_token_" + std::to_string(i) + "|>");
    bytes += strings.back().size();
  }
  const MultiFinder finder(strings);
  EXPECT_LT(finder.memory_bytes(), 20 * bytes);
  MultiFinder::Search search(finder, "a<|reserved_special_token_19999|>b");
  EXPECT_EQ(search.next()->string, 19'999u);
}

}  // namespace
}  // namespace headrace::text
