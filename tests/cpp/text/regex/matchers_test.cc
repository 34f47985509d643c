#include "text/regex/matchers.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "text/regex/engine.h"
#include "text/unicode/utf8.h"

namespace headrace::text {
namespace {

std::vector<Range> all(const Regex& regex, std::string_view text) {
  Fuel fuel(64 * text.size() + (1u << 20), "this test");
  std::vector<Range> matches;
  regex.find_all(text, 0, &matches, &fuel);
  return matches;
}

/// What the patterns tell apart, mixed.
std::string random_text(std::mt19937* random) {
  static const std::vector<std::u32string> pools = {U"abcXYZ",
                                                    U"''’ſKsStTlLrReEvVdDmM",
                                                    U"éßΑσжあア漢字ǅªº",
                                                    U"\u0300\u0903\u20DD\uFE0F\u200D",
                                                    U"\t\n\r \u0085\u00A0\u2003\u2028\u3000",
                                                    U"  \n\n\r",
                                                    U"0123٣²Ⅷ",
                                                    U"😀👨\u200D\U00031350\U0002A700",
                                                    U"!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~«、£",
                                                    U"\x01\x7F\u00AD\uFFFD\u2581\uE000\u0378",
                                                    U"//\n\r "};
  const auto pick = [&](size_t size) {
    return std::uniform_int_distribution<size_t>(0, size - 1)(*random);
  };
  std::u32string letters;
  for (size_t i = 0, count = 1 + pick(4); i < count; ++i) {
    letters += pools[pick(pools.size())];
  }
  std::string text;
  for (size_t i = 0, count = 1 + pick(20); i < count; ++i) {
    append_utf8(letters[pick(letters.size())], &text);
  }
  return text;
}

TEST(MatchersTest, EqualTheGeneralEngine) {
  std::mt19937 random(7);
  for (const std::string_view pattern : own_patterns()) {
    const auto own = own_matcher(pattern);
    const auto general = compile_general(pattern);
    ASSERT_NE(own, nullptr);
    for (int i = 0; i < 300; ++i) {
      const std::string text = random_text(&random);
      const std::vector<Range> matches = all(*own, text);
      EXPECT_EQ(matches, all(*general, text)) << pattern << " on " << text;
      if (!matches.empty()) {
        Fuel fuel(1000, "this test");
        EXPECT_EQ(own->find(text, 0, &fuel), matches[0]) << pattern << " on " << text;
      }
    }
  }
}

TEST(MatchersTest, AreChosenByTheExactText) {
  EXPECT_EQ(own_matcher("\\p{N}{1,4}"), nullptr);
  EXPECT_NE(own_matcher("\\p{N}{1,3}"), nullptr);
}

}  // namespace
}  // namespace headrace::text
