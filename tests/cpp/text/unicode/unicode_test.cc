#include <gtest/gtest.h>

#include <string>

#include "text/unicode/case.h"
#include "text/unicode/graphemes.h"
#include "text/unicode/normal_forms.h"
#include "text/unicode/properties.h"
#include "text/unicode/python_case.h"
#include "text/unicode/utf8.h"

namespace headrace::text {
namespace {

using namespace std::string_literals;

std::string lossy(std::string_view bytes, size_t unfinished = 0) {
  std::string text;
  EXPECT_EQ(append_lossy(bytes, &text), bytes.size() - unfinished);
  return text;
}

TEST(Utf8, FindsWhatIsWrong) {
  EXPECT_EQ(invalid_utf8_at("plain ASCII, long enough, and \u00e9\u4e2d\U0001f600"), kValid);
  EXPECT_EQ(invalid_utf8_at("0123456789\xc0\x80"), 10u);   // overlong
  EXPECT_EQ(invalid_utf8_at("ab\xed\xa0\x80"), 2u);        // a surrogate
  EXPECT_EQ(invalid_utf8_at("\xf4\x90\x80\x80"), 0u);      // over U+10FFFF
  EXPECT_EQ(invalid_utf8_at("\xe4\xb8\xad\xe4\xb8"), 3u);  // unfinished
}

TEST(Utf8, ReplacesMaximalParts) {
  EXPECT_EQ(lossy("a\xe0\x80\x62"), "a\uFFFD\uFFFDb");
  EXPECT_EQ(lossy("\xf0\x90\x41"), "\uFFFD\x41");
  EXPECT_EQ(lossy("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(lossy("x\xf0\x9f\x98", 3), "x");
  EXPECT_EQ(lossy("x\xe4\xb8", 2), "x");
}

TEST(Properties, HaveTheVersionsOfThePackage) {
  EXPECT_TRUE(has_flag(0x31350, kLetter));  // Unicode 15
  EXPECT_FALSE(has_flag(0x7FD, kMark9));    // younger than 9
  EXPECT_TRUE(has_flag(0x7FD, kMark));
  EXPECT_TRUE(has_flag(0x166D, kPunctuation8));  // a symbol since 12
  EXPECT_TRUE(has_flag('$', kPunctuation8));
  EXPECT_FALSE(has_flag('$', kPunctuation));
  EXPECT_TRUE(has_flag(0xB2, kOnigWord));
  EXPECT_FALSE(has_flag(0xB2, kRustWord));
  EXPECT_TRUE(has_flag(0x3000, kSpace));
  EXPECT_EQ(char_flags(0x110000), 0);
}

TEST(NormalForms, OfUnicode9) {
  EXPECT_EQ(normalized("e\u0301", NormalForm::kNfc), "\u00e9");
  EXPECT_EQ(normalized("\u1e9b\u0323", NormalForm::kNfkc), "\u1e69");
  EXPECT_EQ(normalized("\u1112\u1161\u11ab", NormalForm::kNfc), "\ud55c");
  EXPECT_EQ(normalized("\uc8e0\u11a7", NormalForm::kNfc), "\uc8e0\u11a7");
  EXPECT_EQ(normalized("a\u0301\u0323", NormalForm::kNfd), "a\u0323\u0301");
  EXPECT_EQ(normalized("\u212b\u0958", NormalForm::kNfc), "\u00c5\u0915\u093c");
  EXPECT_EQ(normalized("a\u0301\u08d3", NormalForm::kNfc), "\u00e1\u08d3");
  EXPECT_EQ(normalized("\U00011938", NormalForm::kNfd), "\U00011938");
}

TEST(NormalForms, OfLongRunsOfMarks) {
  std::string text = "a";
  std::string ordered = "a";
  for (int i = 0; i < 100'000; ++i) {  // would not end if it took quadratic time
    text += "\u0301\u0323";
    ordered += "\u0323";
  }
  for (int i = 0; i < 100'000; ++i) {
    ordered += "\u0301";
  }
  EXPECT_EQ(normalized(text, NormalForm::kNfd), ordered);
}

TEST(Graphemes, EndWhereThePackageEndsThem) {
  const auto first = [](const std::string& text) { return text.substr(0, grapheme_end(text, 0)); };
  EXPECT_EQ(first("\r\n\n"), "\r\n");
  EXPECT_EQ(first("\n\u0301"), "\n");
  EXPECT_EQ(first("a\u0301\u200d\u093e"
                  "b"),
            "a\u0301\u200d\u093e");
  EXPECT_EQ(first("\u1100\uac00\u11a8\u11a8\u1100"), "\u1100\uac00\u11a8\u11a8");
  EXPECT_EQ(first("\U0001f468\U0001f3fb\u200d\U0001f469x"), "\U0001f468\U0001f3fb\u200d\U0001f469");
  EXPECT_EQ(first("a\u200d\U0001f469"), "a\u200d");
  EXPECT_EQ(first("\U0001f1e9\U0001f1ea\U0001f1e9"), "\U0001f1e9\U0001f1ea");
  EXPECT_EQ(first("\u0915\u094d\u0937\u0937"), "\u0915\u094d\u0937");  // a conjunct
  EXPECT_EQ(first("\u0600"
                  "1"),
            "\u0600"
            "1");
}

TEST(Case, OfRustAndOfPython) {
  EXPECT_EQ(lowered("A\u0391\u03a3 \u0130"), "a\u03b1\u03c3 i\u0307");
  EXPECT_EQ(python_lower("A\u0391\u03a3 \u0130"), "a\u03b1\u03c2 i\u0307");
  EXPECT_EQ(python_upper("stra\u00dfe"), "STRASSE");
  EXPECT_EQ(python_title("they're \u01c6x"), "They'Re \u01c5x");
  EXPECT_EQ(python_capitalize("\u00dfA"), "Ssa");
  EXPECT_EQ(python_swapcase("aB\u01c5"), "Ab\u01c5");
  EXPECT_EQ(python_casefold("\u00df"), "ss");
  EXPECT_TRUE(python_is(0x85, kPySpace));
  EXPECT_FALSE(python_is(0x200B, kPySpace));
  EXPECT_TRUE(python_islower("a1"));
  EXPECT_FALSE(python_isupper("1"));
}

}  // namespace
}  // namespace headrace::text
